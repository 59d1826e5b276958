"""`evo verify` on a table of measurements: what it prints, and its exit codes."""

import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from small_records import build, failed, passed, timing
from small_search import SOURCE

from evo.commands.verify import verify
from evo.data import seed_folder
from evo.settings import ConfigError
from fitness.backends.recorded import export_table
from fitness.evaluation import Evaluation, ScenarioCheck, Status
from fitness.faults import EnvironmentFault

CHECK = ScenarioCheck(
    scenario="b1 h2 s64 d64 causal bf16",
    distribution="normal",
    stage="correctness",
    input_seed=1,
    passed=True,
    reason="",
    max_error=0.25,
    max_error_bound=1.0,
    relative_rms_error=0.0,
    relative_rms_bound=0.01,
    mean_error=0.0,
    mean_error_bound=0.01,
    lse_max_error=0.0,
    lse_max_bound=0.01,
)
PASSED = replace(
    passed(SOURCE, {"b1 h2 s64 d64 causal bf16": 2.0}, suite="smoke"),
    timings=(timing("b1 h2 s64 d64 causal bf16", 2.0, low=1.9, high=2.1),),
    checks=(CHECK, replace(CHECK, distribution="peaked", max_error=0.5)),
    builds=(build("a warning [of the compiler] :warning:"),),
)
WRONG = replace(
    failed(SOURCE, Status.INCORRECT, "o differs :x: by a very long way; " * 20, suite="smoke"),
    checks=(CHECK, replace(CHECK, passed=False, max_error=None, reason="not finite")),
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with contextlib.chdir(tmp_path):
        (tmp_path / "kernel.cu").write_text(SOURCE, encoding="utf-8")
        yield tmp_path


def judged(evaluation: Evaluation, words: Sequence[str]) -> tuple[int, str]:
    export_table([evaluation], Path("table.jsonl"))
    said = io.StringIO()
    where = ["backend=recorded", "backend.table=table.jsonl"]
    return verify(["kernel.cu", *where, *words], Console(file=said, width=140)), said.getvalue()


@pytest.mark.usefixtures("folder")
def test_a_viable_kernel() -> None:
    code, said = judged(PASSED, [])
    assert code == 0
    rows = [[word for word in line.split() if word not in "│┃"] for line in said.splitlines()]
    scenario = CHECK.scenario.split()
    assert [*scenario, "2", "right", "0.50", "0.00", "0.00"] in rows  # the worst of its two checks
    assert [*scenario, "1.0000", "0.5000", "2.0000", "1.900–2.100"] in rows
    assert "HEAD_DIM=64: a warning [of the compiler] :warning:" in said
    assert said.splitlines()[-1] == "PASSED"


@pytest.mark.usefixtures("folder")
def test_a_kernel_that_is_wrong() -> None:
    code, said = judged(WRONG, [])
    assert code == 1
    assert "WRONG" in said
    assert "not finite" in said
    assert said.splitlines()[-1].strip() == f"INCORRECT: {WRONG.reason}".strip()


@pytest.mark.usefixtures("folder")
def test_json_is_the_record_and_each_scenario_in_short() -> None:
    code, said = judged(PASSED, ["--json"])
    assert code == 0
    record = json.loads(said, parse_constant=pytest.fail)
    assert record.pop("scenarios") == [
        {
            "scenario": "b1 h2 s64 d64 causal bf16",
            "status": "PASSED",
            "baseline_ms": 1.0,
            "baseline_setting": "default",
            "candidate_ms": 0.5,
            "speedup": 2.0,
            "interval": [1.9, 2.1],
            "tflops": 1.0,
            "roof_share": None,
            "calls": 1,
            "errors": {
                "max_error": {"error": 0.5, "bound": 1.0},
                "relative_rms_error": {"error": 0.0, "bound": 0.01},
                "mean_error": {"error": 0.0, "bound": 0.01},
                "lse_max_error": {"error": 0.0, "bound": 0.01},
                "row_error": None,
            },
        }
    ]
    assert Evaluation.from_json(record) == PASSED


@pytest.mark.usefixtures("folder")
def test_the_share_of_a_roof_is_the_time_that_it_allows_over_the_kernels_own() -> None:
    """The kernel takes 0.5 ms: a roof of 0.375 ms is three quarters of that."""
    roofed = replace(PASSED, timings=(replace(PASSED.timings[0], roof_ms=0.375),))
    [scenario] = json.loads(judged(roofed, ["--json"])[1], parse_constant=pytest.fail)["scenarios"]
    assert (scenario["candidate_ms"], scenario["roof_share"]) == (0.5, 0.75)
    rows = [line.split() for line in judged(roofed, [])[1].splitlines()]
    assert [*CHECK.scenario.split(), "1.0000", "0.5000", "2.0000", "75%", "1.900–2.100"] in rows


@pytest.mark.usefixtures("folder")
def test_json_of_a_wrong_kernel_tells_which_scenario_is_wrong() -> None:
    code, said = judged(WRONG, ["--json"])
    assert code == 1
    record = json.loads(said, parse_constant=pytest.fail)
    [scenario] = record.pop("scenarios")
    assert (scenario["scenario"], scenario["status"]) == ("b1 h2 s64 d64 causal bf16", "INCORRECT")
    times = ["baseline_ms", "baseline_setting", "candidate_ms", "speedup", "interval", "tflops", "roof_share", "calls"]
    assert [scenario[each] for each in times] == [None] * 8
    assert scenario["errors"]["relative_rms_error"] == {"error": 0.0, "bound": 0.01}
    assert Evaluation.from_json(record) == WRONG


def test_a_file_without_end_is_told_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero cannot be read \(it has more than 16 MiB\); expected the path"):
        verify(["/dev/zero"], Console(file=io.StringIO()))


@pytest.mark.usefixtures("folder")
def test_a_kernel_that_the_table_lacks() -> None:
    Path("kernel.cu").write_text(SOURCE.replace("four knobs", "another"), encoding="utf-8")
    code, said = judged(PASSED, ["--json"])
    assert (code, json.loads(said)["status"]) == (1, "UNSUPPORTED")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("words", [[], ["suite=smoke"], ["--json"]])
def test_no_kernel_named(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"no kernel named; expected evo verify KERNEL\.cu"):
        verify(words, Console(file=io.StringIO()))


@pytest.mark.usefixtures("folder")
def test_a_table_that_is_not_there_is_the_environments_fault() -> None:
    with pytest.raises(EnvironmentFault, match=r"the recorded table nowhere\.jsonl cannot be read"):
        verify(["kernel.cu", "backend=recorded", "backend.table=nowhere.jsonl"], Console(file=io.StringIO()))


@pytest.mark.usefixtures("folder")
def test_a_table_has_nobody_to_audit() -> None:
    with pytest.raises(ConfigError, match="audit=true: this backend answers from a table"):
        judged(PASSED, ["audit=true"])


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_kernel_that_is_no_text(folder: Path, content: bytes | None) -> None:
    path = folder / "odd.cu"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"odd\.cu cannot be read .*; expected the path of a \.cu file"):
        verify(["odd.cu"], Console(file=io.StringIO()))


def test_a_name_that_no_shipped_kernel_has_gets_theirs() -> None:
    with pytest.raises(ConfigError, match=r"nosuch cannot be read .* a shipped one: .*naive, tiled, hopper_attention$"):
        verify(["nosuch"], Console(file=io.StringIO()))


def test_a_shipped_seed_goes_by_its_name(folder: Path) -> None:
    source = (seed_folder() / "tiled.cu").read_text(encoding="utf-8")
    export_table([passed(source, {"b1 h2 s64 d64 causal bf16": 2.0}, suite="smoke")], Path("table.jsonl"))
    said = io.StringIO()
    words = ["tiled", "backend=recorded", "backend.table=table.jsonl"]
    assert verify(words, Console(file=said, width=140)) == 0
    assert said.getvalue().endswith("PASSED\n")
