"""The table of a kernel beside several baselines, from records of what was measured."""

import json
from pathlib import Path

from benchmarks.rivals import able, print_scenarios, summary_row
from evo.suites import load_suite
from fitness.evaluation import Evaluation

CHECKOUT = Path(__file__).parents[2]
RESULTS = CHECKOUT / "docs" / "results"


def measured(baseline):
    record = json.loads((RESULTS / f"h200-champion-{baseline}.json").read_text())
    return [Evaluation.from_json(each) for each in record["rounds"][baseline]]


def test_a_baseline_is_summed_up_over_its_rounds():
    name, rounds, cells, *figures = summary_row("fa3", measured("fa3"))
    assert (name, rounds, cells) == ("fa3", 3, 26)
    assert [round(each, 4) for each in figures] == [1.1265, 1.1261, 1.1272, 1.1249, 0.9954]


def test_a_scenario_that_a_baseline_lacks_leaves_its_place_empty(capsys):
    print_scenarios({"fa3": measured("fa3"), "cudnn": measured("cudnn")})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 26
    assert lines[0].split() == ["scenario", "kernel", "ms", "of", "roof", "x", "fa3", "x", "cudnn"]
    assert lines[1].split()[-4:] == ["0.1391", "0.6278", "1.523", "1.261"]
    [chunked] = [line for line in lines if line.startswith("b4 h32/8 s512x8192")]
    assert chunked.split()[-3:] == ["0.3476", "0.9733", "1.074"]  # cuDNN through torch has no such mask


def test_what_torch_cannot_mask_is_left_out_beside_it():
    suite = load_suite("core26")
    left_out = {each.name for each in suite.scenarios} - {each.name for each in able("sdpa", suite).scenarios}
    assert left_out == {"b4 h32/8 s512x8192 d128 causal bf16", "b32 h32/8 s4x8192 d128 causal bf16"}
