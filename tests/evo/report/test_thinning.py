"""What a page keeps: the rule of docs/report.md, figure by figure."""

from evo.report.thinning import Room, cut, drawn_apart, most_telling


def test_room_is_given_until_it_is_used_up() -> None:
    room = Room(characters=1000, kernels=2)
    assert room.take_table(2, ["&" * 40])  # 400 characters and 200
    assert not room.take_texts(["<" * 101])  # 404 as they stand in the page
    assert room.take_texts(["<" * 100])
    assert not room.take_texts(["x"])
    assert not room.take_table(1)


def test_no_more_kernels_than_there_is_room_for() -> None:
    room = Room(characters=10**6, kernels=2)
    assert [room.take_table(1) for _ in range(3)] == [True, True, False]


def test_the_greatest_gains_and_both_ends_are_kept_in_their_order() -> None:
    assert most_telling([None, 1.01, 1.5, 1.02, 1.4, 1.001], 4) == [0, 2, 4, 5]
    assert most_telling([None, 1.2], 40) == [0, 1]
    assert most_telling([None], 40) == [0]
    assert most_telling([], 40) == []


def test_dots_in_one_cell_are_drawn_once() -> None:
    points = [(0.0, 0.0), (0.1, 0.1), (10.0, 5.0), (10.0, 4.0), (5.0, 0.0)]
    assert drawn_apart(points, lambda point: point, (11, 6)) == [(0.0, 0.0), (10.0, 5.0), (10.0, 4.0), (5.0, 0.0)]
    assert drawn_apart([(1.0, 1.0), (1.0, 1.0)], lambda point: point) == [(1.0, 1.0)]
    assert drawn_apart([], lambda point: point) == []


def test_many_dots_become_no_more_than_the_cells() -> None:
    points = [(float(n % 300), float(n // 300 % 120)) for n in range(36_000)]
    assert len(drawn_apart(points, lambda point: point, (300, 120))) == 36_000
    assert len(drawn_apart(points, lambda point: point, (2, 2))) == 4


def test_long_texts_are_cut() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"
