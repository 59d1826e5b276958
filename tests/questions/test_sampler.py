import random
from collections import Counter
from dataclasses import replace

import pytest

from questions.credit import Outcome
from questions.entry import BankError
from questions.personal import personal_question
from questions.question import Layer, Moment, Style
from questions.sampler import NoQuestionError, QuestionSampler, SamplingMode

PORTABLE = ("portable",)
WRONG = Outcome(answered=True, compiled=True)


def right(gain: float) -> Outcome:
    return Outcome(answered=True, compiled=True, right=True, gain=gain)


def ids_drawn(sampler: QuestionSampler, moment: Moment, draws: int = 60, **fields: object) -> set[str]:
    return {sampler.sample(moment, PORTABLE, **fields).id for _ in range(draws)}


@pytest.fixture
def make_sampler(make_bank):
    def make(*questions, rng_seed: int = 1, **options):
        return QuestionSampler(make_bank(*questions), random.Random(rng_seed), **options)

    return make


def test_draws_what_the_moment_asks_for(make_question, make_sampler):
    sampler = make_sampler(
        make_question("usual"),
        make_question("slow", moments=(Moment.SLOWER,)),
        make_question("both", moments=(Moment.SLOWER, Moment.ANY)),
    )
    assert ids_drawn(sampler, Moment.SLOWER) == {"slow", "both"}
    assert ids_drawn(sampler, Moment.ANY) == {"usual", "both"}
    assert ids_drawn(sampler, Moment.BIG_WIN) == {"usual", "both"}  # nothing for it: any


def test_draws_for_a_target_of_the_kernels(make_question, make_sampler):
    sampler = make_sampler(make_question("p"), make_question("h", targets=("sm_90a", "sm_100a")))
    assert sampler.sample(Moment.ANY, ("sm_90a",)).id == "h"
    assert sampler.sample(Moment.ANY, ("portable",)).id == "p"
    assert {sampler.sample(Moment.ANY, ("portable", "sm_100a")).id for _ in range(40)} == {"p", "h"}
    with pytest.raises(NoQuestionError, match="none of the bank's 2 questions fits"):
        sampler.sample(Moment.ANY, ("sm_80",))


def test_draws_only_what_can_be_filled(make_question, make_sampler):
    sampler = make_sampler(make_question("plain"), make_question("slotted", text="Why {gain} at {registers}?"))
    assert ids_drawn(sampler, Moment.ANY) == {"plain"}
    assert ids_drawn(sampler, Moment.ANY, fillable_slots=("gain",)) == {"plain"}
    assert ids_drawn(sampler, Moment.ANY, fillable_slots=("gain", "registers")) == {"plain", "slotted"}


def test_draws_only_what_has_every_style(make_question, make_sampler):
    questions = (make_question("asked", prescription=None), make_question("told"))
    assert ids_drawn(make_sampler(*questions), Moment.ANY) == {"asked", "told"}
    both = make_sampler(*questions, styles=(Style.QUESTION, Style.PRESCRIPTION))
    assert ids_drawn(both, Moment.ANY) == {"told"}


@pytest.mark.parametrize("moment", [Moment.STALL, Moment.LIMIT_DECLARED, Moment.DONE_DECLARED])
def test_moves_to_another_layer(make_question, make_sampler, moment):
    sampler = make_sampler(
        make_question("same", layer=Layer.MEMORY, moments=(moment,)),
        make_question("other", layer=Layer.LAUNCH, moments=(moment,)),
    )
    assert ids_drawn(sampler, moment, avoid_layers=(Layer.MEMORY,)) == {"other"}


def test_stays_in_the_layer_at_other_moments(make_question, make_sampler):
    sampler = make_sampler(make_question("m", layer=Layer.MEMORY), make_question("l", layer=Layer.LAUNCH))
    assert ids_drawn(sampler, Moment.ANY, avoid_layers=(Layer.MEMORY,)) == {"m", "l"}


def test_falls_back_step_by_step(make_question, make_sampler):
    questions = {
        "stall-other": make_question("stall-other", layer=Layer.LAUNCH, moments=(Moment.STALL,)),
        "any-other": make_question("any-other", layer=Layer.LAUNCH),
        "stall-same": make_question("stall-same", layer=Layer.MEMORY, moments=(Moment.STALL,)),
        "any-same": make_question("any-same", layer=Layer.MEMORY),
        "never": make_question("never", layer=Layer.LAUNCH, moments=(Moment.CROSSOVER,)),
    }
    steps = ["stall-other", "any-other", "stall-same", "any-same"]
    for gone in range(4):
        sampler = make_sampler(*[question for name, question in questions.items() if name not in steps[:gone]])
        assert ids_drawn(sampler, Moment.STALL, avoid_layers=(Layer.MEMORY,)) == {steps[gone]}
    sampler = make_sampler(*questions.values())
    asked = [
        sampler.sample(Moment.STALL, PORTABLE, avoid_layers=(Layer.MEMORY,), exclude_ids=steps[:gone]).id
        for gone in range(5)
    ]
    assert asked == [*steps, "stall-other"]  # all excluded: the first step again


def test_nothing_for_the_moment_nor_for_any(make_question, make_sampler):
    sampler = make_sampler(make_question(moments=(Moment.CROSSOVER,)))
    with pytest.raises(NoQuestionError, match=r"questions\.files"):
        sampler.sample(Moment.STALL, PORTABLE)


def test_a_persons_question_comes_first(make_question, make_sampler):
    sampler = make_sampler(make_question())
    first = personal_question("Is it the L2?", layer=Layer.MEMORY)
    second = replace(personal_question("Is it the grid?", layer=Layer.LAUNCH), targets=("sm_90a",))
    third = personal_question("Is it {gain}?", layer=Layer.LAUNCH)
    for question in (third, second, first, first):
        sampler.push(question)
    excluded = {"exclude_ids": (first.id,), "avoid_layers": (Layer.MEMORY,)}
    assert sampler.sample(Moment.STALL, PORTABLE, **excluded) == first
    assert sampler.sample(Moment.STALL, PORTABLE).id == "q"
    assert sampler.sample(Moment.STALL, ("sm_90a",)) == second
    assert sampler.sample(Moment.STALL, PORTABLE, fillable_slots=("gain",)) == third
    sampler.credit(first.id, right(1.5))
    assert {s.question_id: (s.asked, s.gained) for s in sampler.statistics()} == {
        "q": (1, 0), first.id: (1, 1), second.id: (1, 0), third.id: (1, 0),
    }  # fmt: skip


def test_a_pushed_question_must_be_one_of_its_kind(make_question, make_sampler):
    sampler = make_sampler(make_question("q"))
    with pytest.raises(ValueError, match="question q: the id belongs to 'Which buffer waits longest\\?'"):
        sampler.push(make_question("q", text="Another?"))
    with pytest.raises(BankError, match="expected lower-case words"):
        sampler.push(make_question("Not An Id"))
    sampler.push(make_question("q"))
    assert sampler.sample(Moment.CROSSOVER, PORTABLE).id == "q"


def test_another_question_is_counted_in_the_place_of_the_one_drawn(make_question, make_sampler):
    own = personal_question("Is the mask read twice?", layer=Layer.MEMORY)
    sampler, other = (make_sampler(make_question("q"), make_question("r")) for _ in range(2))
    for each in (sampler, other):
        each.push(own)
    mark = sampler.mark()
    assert sampler.sample(Moment.ANY, PORTABLE) == own
    sampler.recall(make_question("q"), since=mark)
    assert {s.question_id: s.asked for s in sampler.statistics()} == {"q": 1, "r": 0}
    assert sampler.sample(Moment.ANY, PORTABLE) == own  # it waits again

    mark = sampler.mark()
    sampler.sample(Moment.ANY, PORTABLE)
    sampler.recall(make_question("r"), since=mark)
    other.sample(Moment.ANY, PORTABLE)
    other.sample(Moment.ANY, PORTABLE)
    assert sampler.state()["rng"] == other.state()["rng"]  # the generator stays where the draw left it


def test_credit_for_what_was_never_asked(make_question, make_sampler):
    sampler = make_sampler(make_question())
    with pytest.raises(KeyError, match="'q' was never asked"):
        sampler.credit("q", WRONG)


def test_statistics_cover_the_whole_bank(make_question, make_sampler):
    sampler = make_sampler(make_question("a"), make_question("b"))
    assert [(s.question_id, s.asked, s.mean_gain) for s in sampler.statistics()] == [("a", 0, None), ("b", 0, None)]


def run(sampler: QuestionSampler, gains: dict[str, float], rounds: int) -> Counter[str]:
    asked: Counter[str] = Counter()
    for _ in range(rounds):
        question = sampler.sample(Moment.ANY, PORTABLE)
        asked[question.id] += 1
        sampler.credit(question.id, right(gains[question.id]) if question.id in gains else WRONG)
    return asked


@pytest.mark.parametrize("rng_seed", range(5))
def test_a_question_that_pays_is_asked_most(make_question, make_sampler, rng_seed):
    questions = [make_question(f"q{i}") for i in range(10)]
    asked = run(make_sampler(*questions, rng_seed=rng_seed), {"q3": 1.08, "q5": 1.0}, 400)
    assert asked["q3"] > 200
    assert asked["q3"] > 4 * asked["q5"]
    assert all(asked[question.id] > 0 for question in questions)


def test_the_floor_keeps_the_others_alive(make_question, make_sampler):
    questions = [make_question(f"q{i}") for i in range(5)]
    late = {}
    for floor in (0.0, 0.2):
        sampler = make_sampler(*questions, floor=floor)
        run(sampler, {"q0": 1.2}, 1000)
        late[floor] = run(sampler, {"q0": 1.2}, 500)
    assert late[0.0]["q0"] >= 495
    assert min(late[0.2][question.id] for question in questions) >= 8  # 20 expected of each
    assert late[0.2]["q0"] > 380


def test_the_uniform_mode_learns_nothing(make_question, make_sampler):
    questions = [make_question(f"q{i}") for i in range(4)]
    asked = run(make_sampler(*questions, mode=SamplingMode.UNIFORM), {"q0": 2.0}, 800)
    assert all(150 < asked[question.id] < 250 for question in questions)


@pytest.mark.parametrize("floor", [-0.1, 1.1, float("nan")])
def test_a_floor_that_is_no_probability(make_question, make_sampler, floor):
    with pytest.raises(ValueError, match="expected a probability"):
        make_sampler(make_question(), floor=floor)


@pytest.mark.parametrize("target", ["portable", "sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("moment", Moment)
def test_the_shipped_bank_serves_every_moment(shipped_bank, moment, target):
    sampler = QuestionSampler(shipped_bank, random.Random(0), styles=tuple(Style))
    question = sampler.sample(moment, (target,), avoid_layers=(Layer.SCHEDULE, Layer.MEMORY))
    assert target in question.targets
