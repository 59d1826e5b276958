"""Where a run is looked for."""

import contextlib
from pathlib import Path

import pytest

from evo.run_options import locate_run


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("both", "runs/both"), ("here", "here"), ("nowhere", "runs/nowhere"),
        ("styles/4", "runs/styles/4"), ("both/0", "both/0"), ("styles/9", "styles/9"),
        ("runs/styles/4", "runs/styles/4"),
    ],
)  # fmt: skip
def test_a_name_is_one_among_the_runs_and_a_path_one_from_here_first(tmp_path: Path, name: str, found: str) -> None:
    for folder in ("runs/both/0", "runs/styles/4", "both/0", "here"):
        (tmp_path / folder).mkdir(parents=True)
    with contextlib.chdir(tmp_path):
        assert locate_run(name).path == Path(found)
