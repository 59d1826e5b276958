"""Checkpoints: round trips, damage, versions, and a writer that is killed."""

import dataclasses
import hashlib
import json
import math
import random
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from population.checkpoint import (
    Checkpoint,
    Member,
    load_newest,
    newest_generation,
    rng_state_from_json,
    rng_state_to_json,
    save_checkpoint,
)
from population.faults import CheckpointError
from population.individual import Individual, set_fitness

FINITE = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(), PLAIN, max_size=3)
MEMBERS = st.lists(st.builds(Member, id=st.text(), fitness=st.none() | FINITE), max_size=3).map(tuple)


def checkpoint(generation=7, **changes):
    made = Checkpoint(
        generation=generation,
        population=(Member(id="ka", fitness=1.25), Member(id="kb", fitness=0.0), Member(id="kc", fitness=None)),
        hall_of_fame=(Member(id="ka", fitness=1.25),),
        logbook=({"generation": 0, "best": 0.1 + 0.2},),
        rng_states={"global": rng_state_to_json(random.Random(generation))},
        sampler={"q1": {"asked": 3, "gain": 1e-300}},
        counters={"next_birth": 12, "evaluations": 9},
        settings_fingerprint="f00d",
    )
    return dataclasses.replace(made, **changes)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def rewrite(path, change):
    """Changes the record as a program would, its checksum made to match."""
    record = json.loads(path.read_text())
    del record["checksum"]
    change(record)
    record["checksum"] = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(record))


def test_no_checkpoint_yet(tmp_path):
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "absent") is None


def test_a_checkpoint_comes_back_equal(tmp_path):
    path = save_checkpoint(tmp_path / "checkpoints", checkpoint(), keep=3)
    loaded = load_newest(tmp_path / "checkpoints")
    assert path == tmp_path / "checkpoints" / "gen-0007.json"
    assert loaded.checkpoint == checkpoint()
    assert loaded.path == path
    assert loaded.skipped == ()


@settings(deadline=None, max_examples=40)
@given(
    generation=st.integers(min_value=0, max_value=10**6),
    population=MEMBERS,
    hall_of_fame=MEMBERS,
    logbook=st.lists(OBJECT, max_size=2).map(tuple),
    sampler=OBJECT,
    counters=st.dictionaries(st.text(), st.integers(), max_size=3),
    settings_fingerprint=st.text(),
)
def test_any_checkpoint_comes_back_equal(tmp_path_factory, **changes):
    folder = tmp_path_factory.mktemp("checkpoints")
    save_checkpoint(folder, checkpoint(**changes), keep=1)
    assert load_newest(folder).checkpoint == checkpoint(**changes)


def test_only_the_newest_are_kept_counted_by_generation(tmp_path):
    (tmp_path / "gen-notes.json").write_text("mine")
    for generation in (9_998, 9_999, 10_000, 10_001):
        save_checkpoint(tmp_path, checkpoint(generation), keep=2)
    assert names(tmp_path) == ["gen-10000.json", "gen-10001.json", "gen-notes.json"]
    assert load_newest(tmp_path).checkpoint.generation == 10_001


def test_the_newest_generation_is_known_by_name(tmp_path):
    assert newest_generation(tmp_path / "absent") is None
    for name in ("gen-0002.json", "gen-10001.json", "gen-0003.json.7.tmp", "gen-20000.txt"):
        (tmp_path / name).write_text("damaged", encoding="utf-8")
    assert newest_generation(tmp_path) == 10_001


def test_keeping_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected at least 1"):
        save_checkpoint(tmp_path, checkpoint(), keep=0)
    assert names(tmp_path) == []


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"null", b"[]", b"{}", b'{"generation": NaN}', b"\0" * 99])
def test_a_damaged_newest_one_is_skipped_and_told(tmp_path, damage):
    save_checkpoint(tmp_path, checkpoint(6), keep=3)
    newest = save_checkpoint(tmp_path, checkpoint(7), keep=3)
    newest.write_bytes(damage)
    loaded = load_newest(tmp_path)
    assert loaded.checkpoint == checkpoint(6)
    assert len(loaded.skipped) == 1
    assert loaded.skipped[0].startswith(f"{newest}: ")


def test_a_checkpoint_cut_anywhere_is_skipped(tmp_path):
    save_checkpoint(tmp_path, checkpoint(6), keep=3)
    newest = save_checkpoint(tmp_path, checkpoint(7), keep=3)
    content = newest.read_bytes()
    for length in (1, len(content) // 2, len(content) - 1):
        newest.write_bytes(content[:length])
        assert load_newest(tmp_path).checkpoint == checkpoint(6)


def test_one_altered_digit_is_noticed(tmp_path):
    save_checkpoint(tmp_path, checkpoint(6), keep=3)
    newest = save_checkpoint(tmp_path, checkpoint(7), keep=3)
    newest.write_text(newest.read_text().replace("1.25", "1.26", 1))
    assert load_newest(tmp_path).skipped == (f"{newest}: altered or damaged: its checksum does not match",)


def test_a_writing_that_never_ended_is_told_and_swept_by_the_next(tmp_path):
    save_checkpoint(tmp_path, checkpoint(6), keep=3)
    (tmp_path / "gen-0007.json.123.tmp").write_text('{"gener')
    loaded = load_newest(tmp_path)
    assert loaded.checkpoint == checkpoint(6)
    assert loaded.skipped == (f"{tmp_path}/gen-0007.json.123.tmp: left by a writing that was cut short",)
    save_checkpoint(tmp_path, checkpoint(7), keep=3)
    assert names(tmp_path) == ["gen-0006.json", "gen-0007.json"]


def test_a_good_one_is_never_dropped_for_a_damaged_newer_one(tmp_path):
    (tmp_path / "gen-0009.json").write_text("")
    (tmp_path / "gen-0008.json").write_text("")
    save_checkpoint(tmp_path, checkpoint(7), keep=1)
    loaded = load_newest(tmp_path)
    assert loaded.checkpoint == checkpoint(7)
    assert len(loaded.skipped) == 2


def test_when_all_are_damaged_there_is_no_silent_new_start(tmp_path):
    for generation in (1, 2):
        save_checkpoint(tmp_path, checkpoint(generation), keep=3).write_text("")
    with pytest.raises(CheckpointError, match=r"no whole checkpoint is left.*gen-0002.json.*gen-0001.json"):
        load_newest(tmp_path)


@pytest.mark.parametrize("schema", [0, 2, 999, "1", None])
def test_another_schema_is_an_error_that_says_so(tmp_path, schema):
    save_checkpoint(tmp_path, checkpoint(6), keep=3)
    newest = save_checkpoint(tmp_path, checkpoint(7), keep=3)
    rewrite(newest, lambda record: record.update(schema=schema))
    with pytest.raises(CheckpointError, match=rf"gen-0007.json: schema {schema!r}, this evo reads 1; use the version"):
        load_newest(tmp_path)


def test_a_hand_edited_schema_number_says_so_too(tmp_path):
    newest = save_checkpoint(tmp_path, checkpoint(7), keep=3)
    newest.write_text(newest.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(CheckpointError, match="schema 2, this evo reads 1"):
        load_newest(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.update(colour=1), "unknown fields: colour"),
        (lambda record: record.pop("sampler"), "missing fields: sampler"),
        (lambda record: record.pop("schema"), "missing fields: schema"),
        (lambda record: record["population"][0].update(colour=1), "colour"),
        (lambda record: record["population"][0].pop("id"), "id"),
        (lambda record: record.update(population=3), "not iterable"),
        (lambda record: record["population"][0].update(fitness="fast"), "fitness 'fast'"),
        (lambda record: record["hall_of_fame"][0].update(id=7), "id 7"),
        (lambda record: record.update(logbook=[1]), "logbook"),
        (lambda record: record.update(rng_states=[]), "rng_states"),
        (lambda record: record.update(counters={"next_birth": "a"}), "counters"),
    ],
)
def test_other_fields_under_a_true_checksum_are_an_error(tmp_path, change, message):
    newest = save_checkpoint(tmp_path, checkpoint(7), keep=3)
    rewrite(newest, change)
    with pytest.raises(CheckpointError, match=message):
        load_newest(tmp_path)


@pytest.mark.parametrize("sampler", [{"q": math.nan}, {"q": math.inf}, {"q": {1, 2}}, {1: "q"}])
def test_what_json_cannot_hold_is_refused_and_the_last_one_stays(tmp_path, sampler):
    save_checkpoint(tmp_path, checkpoint(6), keep=1)
    with pytest.raises(CheckpointError, match="expected plain finite JSON values"):
        save_checkpoint(tmp_path, checkpoint(7, sampler=sampler), keep=1)
    assert load_newest(tmp_path).checkpoint == checkpoint(6)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "checkpoints").write_text("a file in the way")
    with pytest.raises(CheckpointError, match="make room or rights there"):
        save_checkpoint(tmp_path / "checkpoints", checkpoint(), keep=1)


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from population.checkpoint import load_newest, save_checkpoint
import dataclasses

def die_instead(temporary, target):
    os.kill(os.getpid(), signal.SIGKILL)

def die_after(temporary, target):
    temporary.replace(target)
    os.kill(os.getpid(), signal.SIGKILL)

folder = Path(sys.argv[1])
checkpoint = dataclasses.replace(load_newest(folder).checkpoint, generation=7)
save_checkpoint(folder, checkpoint, keep=1, rename={"instead": die_instead, "after": die_after}[sys.argv[2]])
"""


@pytest.mark.parametrize(("moment", "generation", "told"), [("instead", 6, 1), ("after", 7, 0)])
def test_a_writer_that_is_killed_leaves_a_whole_checkpoint(tmp_path, moment, generation, told):
    save_checkpoint(tmp_path, checkpoint(6), keep=1)
    ended = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(tmp_path), moment], check=False)
    assert ended.returncode == -signal.SIGKILL
    loaded = load_newest(tmp_path)
    assert dataclasses.replace(loaded.checkpoint, generation=6) == checkpoint(6)
    assert loaded.checkpoint.generation == generation
    assert len(loaded.skipped) == told


@settings(deadline=None)
@given(seed=st.integers(), drawn=st.integers(min_value=0, max_value=700), gauss=st.booleans())
def test_a_restored_stream_goes_on_identically(seed, drawn, gauss):
    rng = random.Random(seed)
    for _ in range(drawn):
        rng.random()
    if gauss:
        rng.gauss(0, 1)  # leaves its twin for the next call
    other = random.Random()
    other.setstate(rng_state_from_json(json.loads(json.dumps(rng_state_to_json(rng)))))
    assert [other.gauss(0, 1), other.random(), other.randrange(10**30)] == [
        rng.gauss(0, 1), rng.random(), rng.randrange(10**30),
    ]  # fmt: skip


def test_the_global_stream_is_restored_too():
    random.seed(5)
    state = rng_state_to_json(random)
    expected = [random.random() for _ in range(3)]
    random.setstate(rng_state_from_json(state))
    assert [random.random() for _ in range(3)] == expected


@pytest.mark.parametrize("state", [None, [], [3, [1, 2], None], [2, [], None], [3, ["a"] * 625, None], [3, 5, None]])
def test_a_state_that_is_none_is_refused(state):
    with pytest.raises(CheckpointError, match="random state"):
        rng_state_from_json(state)


@pytest.mark.parametrize("value", [None, 0.0, 1.25])
def test_a_member_carries_the_fitness_over_and_an_empty_one_stays_empty(value):
    before, after = (Individual.from_source("a", birth=-1, generation=0, operator="seed") for _ in range(2))
    if value is not None:
        set_fitness(before, value)
    member = Member.of(before)
    member.restore_fitness(after)
    assert member == Member(id=before.id, fitness=value)
    assert after.fitness == before.fitness
    assert after.fitness.valid == (value is not None)


def test_a_part_that_a_checkpoint_lacks_is_an_error():
    with pytest.raises(CheckpointError, match="lacks the counter elapsed_ms"):
        checkpoint().counter("elapsed_ms")
    with pytest.raises(CheckpointError, match="random state"):
        checkpoint().rng_state("search")
    assert checkpoint().counter("next_birth") == 12
