"""What a benchmark that needs a GPU says where there is none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
COMMANDS = {
    "rivals": ["kernels/seed/naive.cu"],
    "left_out": ["kernels/seed/naive.cu"],
    "evaluation_cost": [],
    "evaluations_apart": ["kernels/seed/naive.cu"],
    "honest_kernels": [],
    "runtime_overhead": [],
    "same_kernel_twice": [],
    "verify_table": [],
    "gpu_share": ["backend=cuda"],
}
RUN_ALL = """
import contextlib, io, json, runpy, sys
ended = {}
for name, words in json.loads(sys.argv[1]).items():
    out, errors = io.StringIO(), io.StringIO()
    sys.argv = [name, *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            ended[name] = [end.code, out.getvalue(), errors.getvalue()]
        except BaseException as error:
            ended[name] = [1, out.getvalue(), repr(error)]
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """How each of them ends: all in one child process, which imports torch once."""
    folder = tmp_path_factory.mktemp("records")
    commands = {name: [*words, "--out", str(folder / f"{name}.json")] for name, words in COMMANDS.items()}
    child = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(commands)],
        cwd=CHECKOUT, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, text=True, stdout=subprocess.PIPE,
        timeout=120, check=True,
    )  # fmt: skip
    assert list(folder.iterdir()) == []
    return json.loads(child.stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_it_ends_with_one_line(ended, name):
    code, out, errors = ended[name]
    assert (code, out) == (2, "")
    assert errors.splitlines() == [errors.strip()]
    assert errors.startswith("evo: ")
    assert "GPU" in errors
