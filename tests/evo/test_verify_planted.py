"""`evo verify` on kernels that are wrong on purpose, one after the other, and on a good one last."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from evo.cli import run
from evo.data import seed_folder

PLANTED = Path(__file__).parent.parent / "fitness" / "kernels" / "portable"
FAULTS = {
    "wrong_scale": "INCORRECT",
    "causal_off_by_one": "INCORRECT",
    "missing_barrier": "INCORRECT",
    "last_tile_skipped": "INCORRECT",
    "lse_missing": "INCORRECT",
    "lse_base_2": "INCORRECT",
    "nan_in_one_element": "INCORRECT",
    "zeros": "INCORRECT",
    "endless_loop": "TIMEOUT",
    "out_of_bounds_far": "RUNTIME_ERROR",
}


def verify(kernel: Path, cache: Path) -> tuple[int, str, str]:
    """Exit code and the two outputs."""
    out, errors = (Console(file=io.StringIO(), width=200) for _ in range(2))
    shape = "{batch: 1, heads: 2, seqlen_q: 160, head_dim: 64, causal: true}"
    words = ["backend=host", f"suite.scenarios=[{shape}]", "suite.name=tiny", "judge.repeats=1", "judge.warmups=0"]
    code = run(["verify", str(kernel), *words, "judge.call_timeout_s=2", f"backend.cache={cache}"], out, errors)
    return code, *(console.file.getvalue() for console in (out, errors))  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_gets_its_status_and_exit_code_1(name: str, cache: Path) -> None:
    code, out, errors = verify(PLANTED / f"{name}.cu", cache)
    assert (code, errors) == (1, "")
    assert out.splitlines()[-1].startswith(f"{FAULTS[name]}: ")


def test_a_file_whose_lines_end_as_windows_ends_them_is_refused(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "crlf.cu"
    path.write_bytes((seed_folder() / "tiled.cu").read_bytes().replace(b"\n", b"\r\n"))
    code, out, errors = verify(path, cache)
    assert (code, errors) == (1, "")
    said = "ends in a carriage return; lines end with a line feed alone; that is not allowed"
    assert out.splitlines()[-1] == f"INVALID: '/*evo\\r' {said}"


def test_a_good_kernel_passes_after_them_with_a_verdict_for_each_scenario(cache: Path) -> None:
    code, out, errors = verify(seed_folder() / "tiled.cu", cache)
    assert (code, errors) == (0, "")
    assert out.splitlines()[-1] == "PASSED"
    verdicts = [line.split() for line in out.splitlines() if " right " in line or " WRONG " in line]
    assert len(verdicts) == 6  # the scenario, and five edges
    assert all("right" in verdict for verdict in verdicts)
