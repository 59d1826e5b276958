from pathlib import Path

import pytest

from evo.answerers.answerer import Request
from evo.answerers.offline import OfflineAnswerer
from evo.reply import Answer, read_reply
from fitness.manifest import read_manifest, with_knobs

PARENT = (Path(__file__).parents[1] / "data" / "parent.cu").read_text()
BARE = PARENT.replace(PARENT[PARENT.index("[knobs]") : PARENT.index("[[launch]]")], "").replace("BLOCK_M", "64")


def request(number: int, *sources: str, layer: str = "launch", attempt: int = 0) -> Request:
    return Request(number=number, attempt=attempt, prompt="?", layer=layer, parent_sources=sources or (PARENT,))


def ask(asked: Request, rng_seed: int = 1) -> Answer:
    text = OfflineAnswerer(rng_seed=rng_seed).answer(asked).text
    return read_reply(text, asked.parent_sources[0], "stop")


def knobs(source: str) -> dict[str, int]:
    return {knob.name: knob.value for knob in read_manifest(source).knobs}


def test_it_turns_knobs_of_the_questions_layer_and_nothing_else():
    for number in range(20):
        answer = ask(request(number))
        turned = knobs(answer.source)
        assert turned["UNROLL"] == 4
        assert turned["BLOCK_M"] in (32, 128)
        assert answer.source == with_knobs(PARENT, turned)
        assert answer.notes.hypothesis == "none; turn knobs of the layer launch and measure"
        assert answer.notes.change == f"BLOCK_M = {turned['BLOCK_M']}"


def test_a_layer_without_knobs_falls_back_to_any_and_says_so():
    answers = [ask(request(number, layer="memory")) for number in range(20)]
    turned = {name for answer in answers for name, _ in knobs(answer.source).items() - knobs(PARENT).items()}
    assert turned == {"BLOCK_M", "UNROLL"}
    assert all("the layer memory has no knob" in answer.notes.hypothesis for answer in answers)
    assert {len(answer.notes.change.split(", ")) for answer in answers} == {1, 2}


def test_the_reply_follows_from_seed_number_and_attempt_alone():
    offline = OfflineAnswerer(rng_seed=3)
    forwards = [offline.answer(request(number, layer="memory")).text for number in range(12)]
    backwards = [offline.answer(request(number, layer="memory")).text for number in reversed(range(12))]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) > 3
    others = [
        [OfflineAnswerer(rng_seed=4).answer(request(number, layer="memory")).text for number in range(12)],
        [offline.answer(request(number, layer="memory", attempt=1)).text for number in range(12)],
    ]
    assert all(other != forwards for other in others)


def test_a_crossover_mixes_the_parents_knobs():
    second = with_knobs(PARENT, {"BLOCK_M": 128, "UNROLL": 1})
    children = {ask(request(number, PARENT, second)).source for number in range(20)}
    assert children == {with_knobs(PARENT, {"BLOCK_M": 128}), with_knobs(PARENT, {"UNROLL": 1})}


@pytest.mark.parametrize(
    "second", [PARENT, with_knobs(PARENT, {"UNROLL": 1}), PARENT.replace("return sum;", "return sum + 0.0f;")]
)
def test_parents_that_cannot_be_mixed_fall_back_to_the_first_and_it_says_so(second):
    asked = request(1, PARENT, second)
    text = OfflineAnswerer(rng_seed=1).answer(asked).text
    assert text.startswith("The two kernels cannot be mixed by their knobs; the first alone is changed.\n")
    assert knobs(read_reply(text, PARENT, "stop").source)["UNROLL"] == 4


def test_a_kernel_without_knobs_gets_an_honest_reply_without_code():
    reply = OfflineAnswerer(rng_seed=1).answer(request(1, BARE))
    assert "no knob to turn" in reply.text
    assert "SEARCH" not in reply.text


def test_a_knobs_line_that_stands_twice_gets_lines_before_it():
    line = 'BLOCK_M = { value = 64, choices = [32, 64, 128], layer = "launch" }'
    parent = PARENT + f"/*\n{line}\n*/\n"
    child = ask(request(1, parent)).source
    assert child in [with_knobs(parent, {"BLOCK_M": value}) for value in (32, 128)]


def test_it_says_who_it_is_and_costs_nothing():
    offline = OfflineAnswerer(rng_seed=1)
    reply = offline.answer(request(1))
    assert offline.description == (
        "offline: turns knobs, no language model; the phrasing of a question has no effect by construction"
    )
    assert (reply.model, reply.finish_reason, reply.usage.cost_usd, reply.used_tools) == ("offline", "stop", 0.0, False)
