"""Experiments that sweep by themselves: which jobs they make, and what a command line says of a swept key."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from small_search import SEED, write_table

from evo.cli import run
from evo.config import StyleKind
from evo.settings import compose_config, experiments_sweep
from evo.toolbox import build_bank, build_sampler
from questions.phrasing import has_phrasing
from questions.question import Moment, Style

STYLES = "question,imperative,information,prescription,open,bare"
EXPERIMENT = "experiment=prompt_styles"


def test_prompt_styles_sweeps_over_every_style_and_three_seeds() -> None:
    assert ",".join(style.value for style in StyleKind) == STYLES
    assert experiments_sweep([EXPERIMENT]) == {"style": STYLES, "rng_seed": "0,1,2"}
    assert experiments_sweep([EXPERIMENT, "rng_seed=7,8", "evolution.mu=2"]) == experiments_sweep([EXPERIMENT])
    assert experiments_sweep(["experiment=single_shot"]) == {}
    assert experiments_sweep(["style=bare"]) == {}


def test_every_style_draws_from_the_same_questions() -> None:
    """Else the prescriptions would be about those hypotheses alone that have one."""
    drawn = {}
    for style in ("question", "prescription", "bare"):
        config = compose_config([EXPERIMENT, f"style={style}"])
        sampler = build_sampler(config, build_bank(config))
        drawn[style] = [sampler.sample(Moment.ANY, ["portable"]) for _ in range(40)]
    assert drawn["question"] == drawn["prescription"] == drawn["bare"]
    assert all(has_phrasing(question, style) for question in drawn["bare"] for style in Style)


def test_a_sweep_needs_no_flag_and_a_key_that_is_given_is_not_swept(tmp_path: Path) -> None:
    write_table(tmp_path / "table.jsonl.gz", suite="smoke")
    command = [
        sys.executable, "-c", "from evo.cli import main; main()", "evolve", EXPERIMENT, "style=bare,question",
        "rng_seed=5", "name=styles", "backend=recorded", "backend.table=table.jsonl.gz", f"seeds=['{SEED}']",
        "stop.evaluations=4",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    results = [json.loads((tmp_path / "runs" / "styles" / job / "result.json").read_text()) for job in ("0", "1")]
    assert [(each["style"], each["rng_seed"], each["evaluations"]) for each in results] == [
        ("bare", 5, 4), ("question", 5, 4),
    ]  # fmt: skip
    archives = (tmp_path / "runs" / "styles").glob("*/archive.sqlite")
    assert sorted(path.parent.name for path in archives) == ["0", "1"]
    again = subprocess.run(
        [*command[:4], "resume=runs/styles/1", "stop.evaluations=5"], cwd=tmp_path, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    result = json.loads((tmp_path / "runs" / "styles" / "1" / "result.json").read_text())
    assert (result["style"], result["evaluations"]) == ("question", 5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([EXPERIMENT, "stile=bare"], "evo: stile is no option; did you mean style?"),
        (["experiment=prompt_stiles"], "evo: experiment=prompt_stiles: did you mean prompt_styles?"),
        ([EXPERIMENT, "style=bear,question"], "evo: style=bear: did you mean bare?"),
        (["experiment=single_shot", "rng_seed=0,1"], "evo: several values for one key: to sweep over them, add -m"),
        (["experiment=single_shot", "single_shot.styles=[bare]"], "single_shot.styles=[bare]: expected two or more"),
        (["experiment=single_shot", "single_shot.styles=[bare,bare]"], "expected two or more styles, each once"),
        (["experiment=single_shot", "single_shot.questions=0"], "evo: single_shot.questions=0: expected at least 1"),
    ],
)
def test_a_bad_command_line_gets_one_line(words: list[str], said: str) -> None:
    out, errors = (io.StringIO() for _ in range(2))
    code = run(["evolve", *words], Console(file=out, width=500), Console(file=errors, width=500))
    assert (code, out.getvalue()) == (2, "")
    assert said in errors.getvalue()
    assert errors.getvalue().count("\n") == 1
