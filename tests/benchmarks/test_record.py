"""What a record says of how it was made."""

from pathlib import Path

from benchmarks.record import command_line

ROOT = Path(__file__).parents[2]


def test_a_command_is_told_as_it_is_given_in_the_repositorys_root() -> None:
    told = command_line([str(ROOT / "benchmarks" / "scale.py"), "100"])
    assert told == "PYTHONPATH=. python3 benchmarks/scale.py 100"


def test_a_program_from_elsewhere_goes_by_its_name_alone() -> None:
    assert command_line(["/somewhere/else/measure.py", "--out", "a"]) == "PYTHONPATH=. python3 measure.py --out a"
