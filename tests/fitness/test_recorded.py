"""A table of earlier measurements answers as the device did, and says so where it cannot."""

import json
from dataclasses import replace

import pytest

from fitness.backends.recorded import RecordedEvaluator, export_table, load_table, table_environment
from fitness.evaluation import Environment, Evaluation, Status
from fitness.evaluation_key import source_sha256
from fitness.faults import EnvironmentFault

ENVIRONMENT = Environment(
    backend="cuda", device="H200", driver="580", compiler="NVRTC 13.0", baseline="fa3", baseline_version="3"
)


def recorded(source, status=Status.INCORRECT, reason="wrong", geomean=None, key="k"):
    return Evaluation(
        key=key, source_sha256=source_sha256(source), suite="core26", status=status, reason=reason,
        environment=ENVIRONMENT, geomean=geomean,
    )  # fmt: skip


GOOD = recorded("good", Status.PASSED, "", 1.1)
BAD = recorded("bad")


def test_a_source_has_the_record_that_was_made_of_it():
    table = RecordedEvaluator([GOOD, BAD])
    assert table.evaluate("good") is GOOD
    assert table.evaluate("bad") is BAD
    assert table.environment == ENVIRONMENT


def test_any_other_source_is_unsupported_with_a_key_of_its_own():
    table = RecordedEvaluator([GOOD, BAD])
    found = table.evaluate("good ")
    assert found.status is Status.UNSUPPORTED
    assert "not among the 2 sources of the recorded table" in found.reason
    assert (found.suite, found.environment, found.geomean) == ("core26", ENVIRONMENT, None)
    assert found.source_sha256 == source_sha256("good ")
    assert found.key not in ("k", table.evaluate("good  ").key)
    assert found == table.evaluate("good ")


def test_many_come_back_in_order_and_are_heard_of():
    heard = []
    found = RecordedEvaluator([GOOD, BAD]).evaluate_all(["bad", "?", "good"], lambda *done: heard.append(done))
    assert [each.status for each in found] == [Status.INCORRECT, Status.UNSUPPORTED, Status.PASSED]
    assert heard == list(enumerate(found))


def test_the_last_record_of_a_source_counts():
    newer = replace(GOOD, geomean=1.2)
    assert RecordedEvaluator([GOOD, newer]).evaluate("good").geomean == 1.2


@pytest.mark.parametrize("change", [{"suite": "smoke"}, {"environment": replace(ENVIRONMENT, device="H100")}])
def test_a_table_is_of_one_suite_and_one_device(change):
    with pytest.raises(EnvironmentFault, match="mixes measurements"):
        RecordedEvaluator([GOOD, replace(BAD, **change)])


def test_an_empty_table_is_refused():
    with pytest.raises(EnvironmentFault, match="empty"):
        RecordedEvaluator([])


@pytest.mark.parametrize("name", ["table.jsonl", "table.jsonl.gz", "table.jsonl.xz"])
def test_a_table_that_was_exported_is_read_back(tmp_path, name):
    for copy in ("one", "other"):
        (tmp_path / copy).mkdir()
        export_table([GOOD, BAD], tmp_path / copy / name)
    assert load_table(tmp_path / "one" / name) == (GOOD, BAD)
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_the_table_is_one_record_a_line(tmp_path):
    export_table([GOOD, BAD], tmp_path / "table.jsonl")
    lines = (tmp_path / "table.jsonl").read_text().splitlines()
    assert [json.loads(line)["source_sha256"] for line in lines] == [source_sha256("good"), source_sha256("bad")]


@pytest.mark.parametrize("line", ["", "{", "[]", "3", "{}", '{"geomean": NaN}', '{"key": "k"}'])
def test_a_line_that_is_no_evaluation_is_named(tmp_path, line):
    path = tmp_path / "table.jsonl"
    export_table([GOOD], path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(EnvironmentFault, match="line 2: this is no evaluation"):
        load_table(path)


@pytest.mark.parametrize("name", ["table.jsonl", "table.jsonl.gz", "table.jsonl.xz"])
def test_a_file_that_cannot_be_read_is_the_environments_fault(tmp_path, name):
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        load_table(tmp_path / name)
    (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        load_table(tmp_path / name)


def test_a_file_that_was_cut_off_is_the_environments_fault(tmp_path):
    for name in ("table.gz", "table.xz"):
        export_table([GOOD, BAD], tmp_path / name)
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-20])
        with pytest.raises(EnvironmentFault, match="cannot be read"):
            load_table(tmp_path / name)


def test_the_environment_of_a_table_is_read_from_its_first_line(tmp_path):
    table = tmp_path / "table.jsonl"
    export_table([GOOD, BAD], table)
    assert table_environment(table) == ENVIRONMENT
    table.write_bytes(b"")
    with pytest.raises(EnvironmentFault, match=r"table\.jsonl is empty; expected at least one evaluation"):
        table_environment(table)
