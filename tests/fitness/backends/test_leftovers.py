"""What a workspace holds before a call: NaN patterns at one of two calls, small numbers at the other."""

import pytest
import torch

from fitness.backends.leftovers import Leftovers, fill_with_numbers
from fitness.backends.nan_words import nan_generator

CPU = torch.device("cpu")


def found_at(calls, sizes=(4096,)):
    """What so many calls of one candidate find in workspaces of these sizes."""
    leftovers, memories = Leftovers(nan_generator(CPU)), [torch.zeros(size, dtype=torch.uint8) for size in sizes]
    found = []
    for _ in range(calls):
        leftovers.put_into(memories)
        found.append([memory.clone() for memory in memories])
    return found


def kind(memory):
    """Of a workspace that holds nothing else: whether NaN patterns or small numbers."""
    if memory.view(torch.bfloat16).isnan().all():
        assert memory.view(torch.float16).isnan().all()
        assert memory.view(torch.float32).isnan().all()
        return "nan"
    words = memory.view(torch.int32)
    assert words.min() >= 0
    assert words.max() < 32
    return "small"


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("limit", [2, 4, 8, 16, 32])
def test_numbers_are_all_there_are_from_the_least_to_the_limit(least, limit):
    memory = torch.full((4096,), 0xFF, dtype=torch.uint8)
    fill_with_numbers(memory, least, limit, nan_generator(CPU))
    words = memory.view(torch.int32)
    assert set(words.tolist()) == set(range(least, limit))
    assert memory.view(torch.float32).abs().max() < 1e-43
    assert not memory.view(torch.int16)[1::2].any()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4099])
def test_numbers_reach_the_last_byte(size):
    memory = torch.full((size,), 0xFF, dtype=torch.uint8)
    fill_with_numbers(memory, 0, 32, nan_generator(CPU))
    assert (memory < 32).all()


def test_no_counter_stands_at_its_beginning_when_small_numbers_come_first_and_some_do_later():
    small = [[memory.view(torch.int32) for (memory,) in found_at(8) if kind(memory) == "small"] for _ in range(20)]
    assert all((first > 0).all() for first, *_ in small)
    assert {bool((words == 0).any()) for _, *later in small for words in later} == {True, False}


def test_of_each_two_calls_one_finds_nans_and_the_other_small_numbers():
    for _ in range(20):
        kinds = [kind(memory) for (memory,) in found_at(6)]
        assert [sorted(kinds[i : i + 2]) for i in (0, 2, 4)] == [["nan", "small"]] * 3


def test_a_coin_says_which_comes_first_of_each_two():
    firsts = {tuple(kind(memory) for (memory,) in found_at(3)[::2]) for _ in range(200)}
    assert len(firsts) == 4


def test_all_workspaces_of_a_call_hold_one_kind():
    for one, other in found_at(2, sizes=(64, 4096)):
        assert kind(one) == kind(other)


def test_nobody_can_foretell_the_words():
    calls = [memory for _ in range(20) for (memory,) in found_at(2)]
    small = [memory.view(torch.int32) for memory in calls if kind(memory) == "small"]
    varied = [tuple(words.tolist()) for words in small if words.max() > 1]  # else they are all 1
    assert len(set(varied)) == len(varied) > 0


def test_how_small_they_are_is_drawn_for_each_call():
    calls = [memory for (memory,) in found_at(200)]
    limits = {int(memory.view(torch.int32).max()) for memory in calls if kind(memory) == "small"}
    assert limits == {1, 3, 7, 15, 31}
