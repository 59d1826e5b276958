import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from questions.credit import Outcome
from questions.personal import personal_question
from questions.question import Layer, Moment
from questions.sampler import QuestionSampler, SamplingMode
from questions.sampler_state import SamplerStateError

PORTABLE = ("portable",)
GAIN = Outcome(answered=True, compiled=True, right=True, gain=1.07)


def through_json(state):
    return json.loads(json.dumps(state, allow_nan=False))


@pytest.fixture(scope="session")
def bank_of(make_question, make_bank):
    layers = dict(zip("abcdevwxy", list(Layer) * 2, strict=False))
    return lambda names: make_bank(*[make_question(name, layer=layers[name]) for name in names])


@pytest.fixture
def make_sampler(bank_of):
    return lambda names="abcde", **options: QuestionSampler(bank_of(names), random.Random(1), **options)


outcomes = st.one_of(
    st.just(Outcome(answered=False)),
    st.just(Outcome(answered=True, compiled=True)),
    st.floats(0.2, 5.0).map(lambda gain: Outcome(answered=True, compiled=True, right=True, gain=gain)),
)
histories = st.lists(st.tuples(st.sampled_from([Moment.ANY, Moment.STALL, Moment.SLOWER]), outcomes), max_size=25)


def play(sampler: QuestionSampler, history) -> list[str]:
    asked = []
    for moment, outcome in history:
        question = sampler.sample(moment, PORTABLE, avoid_layers=(Layer.MEMORY,))
        asked.append(question.id)
        sampler.credit(question.id, outcome)
    return asked


@settings(deadline=None)
@given(history=histories, rest=histories, rng_seed=st.integers(0, 2**32), mode=st.sampled_from(SamplingMode))
def test_the_same_state_asks_the_same(bank_of, history, rest, rng_seed, mode):
    bank = bank_of("abcde")
    first, second = (QuestionSampler(bank, random.Random(rng_seed), mode=mode) for _ in range(2))
    assert play(first, history) == play(second, history)
    assert first.state() == second.state()

    resumed = QuestionSampler(bank_of("ab"), random.Random(99), mode=mode)
    saved = through_json(first.state())
    resumed.restore(saved, bank)
    assert resumed.state() == saved
    assert resumed.statistics() == first.statistics()
    assert play(resumed, rest) == play(first, rest)


def test_a_saved_state_does_not_change_afterwards(make_sampler):
    sampler = make_sampler()
    saved = sampler.state()
    before = json.dumps(saved)
    sampler.credit(sampler.sample(Moment.ANY, PORTABLE).id, GAIN)
    assert json.dumps(saved) == before


def test_more_questions_than_were_saved(make_sampler, bank_of):
    sampler = make_sampler("abc")
    play(sampler, [(Moment.ANY, GAIN)] * 12)
    resumed = make_sampler("abc")
    resumed.restore(through_json(sampler.state()), bank_of("vabcw"))
    statistics = {s.question_id: s for s in resumed.statistics()}
    assert list(statistics) == ["v", "a", "b", "c", "w"]
    assert statistics["v"].asked == statistics["w"].asked == 0
    assert sum(s.asked for s in statistics.values()) == sum(s.gained for s in statistics.values()) == 12
    assert {resumed.sample(Moment.ANY, PORTABLE).id for _ in range(80)} == set("vabcw")


def test_fewer_questions_than_were_saved(make_sampler, bank_of):
    sampler = make_sampler("abc", floor=1.0)
    play(sampler, [(Moment.ANY, GAIN)] * 30)
    resumed = make_sampler("abc")
    resumed.restore(through_json(sampler.state()), bank_of("ca"))
    assert {resumed.sample(Moment.ANY, PORTABLE).id for _ in range(60)} == {"a", "c"}
    lost = [s for s in resumed.statistics() if s.question_id == "b"]
    assert lost == [s for s in sampler.statistics() if s.question_id == "b"]
    resumed.credit("b", GAIN)  # the outcome of a question that was on its way when the bank changed
    again = make_sampler("abc")
    again.restore(through_json(resumed.state()), bank_of("abc"))
    assert {s.question_id: s.answered for s in again.statistics()}["b"] == lost[0].answered + 1


def test_what_waits_is_saved_too(make_sampler, bank_of):
    sampler = make_sampler()
    question = personal_question("Is it the grid, at {worst_speedup}?", layer=Layer.LAUNCH)
    sampler.push(question)
    resumed = make_sampler()
    resumed.restore(through_json(sampler.state()), bank_of("xy"))
    assert resumed.sample(Moment.ANY, PORTABLE, fillable_slots=("worst_speedup",)) == question
    assert resumed.sample(Moment.ANY, PORTABLE, fillable_slots=("worst_speedup",)) != question


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 0}, "schema 0; this version reads 1"),
        ({"schema": 2}, "schema 2; this version reads 1"),
        ({"schema": None}, "schema None"),
        ({"more": 1}, "fields more, queue, rng, schema, tallies; expected schema"),
        ({"rng": [3, [1, 2], None]}, "rng: not a state"),
        ({"rng": None}, "rng: not a state"),
        ({"rng": [1]}, "rng: not a state"),
        ({"tallies": []}, "tallies: list; expected a mapping"),
        ({"tallies": {"a": {}}}, "question a: tally"),
        ({"tallies": {"a": None}}, "question a: tally None"),
        ({"queue": {}}, "queue: dict; expected a list"),
        ({"queue": "ab"}, "queue: str; expected a list"),
        ({"queue": [{"id": "x"}]}, r"queue\[0\]: text, layer, .* missing"),
    ],
)
def test_a_state_that_was_not_written_here_changes_nothing(make_sampler, bank_of, change, message):
    sampler = make_sampler()
    play(sampler, [(Moment.ANY, GAIN)] * 3)
    before = sampler.state()
    with pytest.raises(SamplerStateError, match=message):
        sampler.restore({**before, **change}, bank_of("xy"))
    assert sampler.state() == before
    assert sampler.sample(Moment.ANY, PORTABLE).id in set("abcde")


def test_a_state_with_a_field_missing_or_of_another_kind(make_sampler, bank_of):
    sampler = make_sampler()
    state = sampler.state()
    del state["rng"]
    with pytest.raises(SamplerStateError, match="fields queue, schema, tallies"):
        sampler.restore(state, bank_of("a"))
    with pytest.raises(SamplerStateError, match="list; expected a mapping"):
        sampler.restore([], bank_of("a"))
