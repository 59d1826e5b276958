"""The command line: what is wrong gets one line and exit code 2, and leaves nothing behind."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from small_search import SEED, write_table

from evo.cli import COMMANDS, run
from population.archive_reader import read_archive
from population.run_folder import RunFolder


class Shell:
    """Runs commands in this process, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out, self.errors = io.StringIO(), io.StringIO()

    def __call__(self, *words: str) -> int:
        wide: dict[str, Any] = {"width": 500, "soft_wrap": True}
        return run(words, Console(file=self.out, **wide), Console(file=self.errors, **wide))

    @property
    def complaint(self) -> str:
        """The one line on stderr."""
        [line] = self.errors.getvalue().splitlines()
        return line


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with contextlib.chdir(tmp_path):
        yield Shell(tmp_path)


def test_without_a_command_it_says_how_it_is_used(shell: Shell) -> None:
    assert shell() == 2
    assert shell.out.getvalue().startswith("usage: evo COMMAND")
    assert all(f"\n  {name} " in shell.out.getvalue() for name in COMMANDS)


@pytest.mark.parametrize("word", ["help", "-h", "--help"])
def test_help_is_no_fault(shell: Shell, word: str) -> None:
    assert shell(word) == 0
    assert shell.out.getvalue().startswith("usage: evo COMMAND")


@pytest.mark.parametrize("word", ["-h", "--help"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_how_it_is_used(shell: Shell, name: str, word: str) -> None:
    assert shell(name, word) == 0
    assert shell.out.getvalue().startswith(f"usage: evo {name} ")
    assert f"\nexample:  evo {name} " in shell.out.getvalue()


def test_evolve_leaves_its_whole_configuration_to_hydra(tmp_path: Path) -> None:
    told = evo(tmp_path, "evolve", "--cfg", "job")
    assert told.returncode == 0
    assert "suite:" in told.stdout


def test_the_version(shell: Shell) -> None:
    assert shell("--version") == 0
    assert shell.out.getvalue() == f"evo {version('question-evo')}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evolv"], "evo: 'evolv' is no command; expected one of evolve, verify"),
        (["evolve", "evolution.muu=3"], "evo: evolution.muu is no option; did you mean evolution.mu?"),
        (["evolve", "suite=core62"], "evo: suite=core62: did you mean core26?"),
        (["evolve", "--fast"], "evo: --fast is no option of evolve; expected key=value, or -m for a sweep"),
        (["evolve", "evolution.mu=0"], "evo: evolution.mu=0: expected at least 1"),
        (["evolve", "stop.evaluations=-5"], "evo: stop.evaluations=-5: expected at least 1"),
        (["evolve", "rng_seed=1,2"], "evo: several values for one key: to sweep over them, add -m"),
        (["evolve", "seeds=[nowhere.cu]"], "evo: seeds: 'nowhere.cu' cannot be read"),
        (["evolve", "style.template=nowhere.md"], "evo: style.template: 'nowhere.md' cannot be read"),
        (["evolve", "questions.files=[nowhere.yaml]"], "evo: nowhere.yaml: cannot be read"),
        (["evolve", "answerer=openai", "answerer.model=m", "answerer.usd_per_million_prompt_tokens=-1"],
         "evo: answerer.usd_per_million_prompt_tokens=-1.0: expected at least 0"),
        (["evolve", "experiment=single_shot", "single_shot.questions=99999"],
         " questions of the bank can be put in the styles question, "),
        (["evolve", "resume=nowhere"], "no such run"),
        (["evolve", "resume=a.file"], "this is a file; expected the folder of a run"),
        (["evolve", "resume=a.folder"], "this folder is no run: it holds no archive.sqlite"),
        (["evolve", "-m", "rng_seed=1,x"], "evo: rng_seed: Value 'x'"),
        (["evolve", "-m", "resume=a.folder", "rng_seed=1,2"], "evo: resume=… goes on with the jobs of one sweep"),
        (["evolve", "-m", "resume=a.folder"], "evo: resume=a.folder: no sweep is there"),
        (["verify"], "evo: verify: no kernel named; expected evo verify KERNEL.cu"),
        (["verify", "nowhere.cu"], "evo: verify: nowhere.cu cannot be read"),
        (["verify", "a.folder"], "evo: verify: a.folder cannot be read"),
        (["verify", "a.file", "suiet=smoke"], "evo: suiet is no option; did you mean suite?"),
        (["doctor", "backend=gpu"], "evo: backend=gpu: "),
    ],
)  # fmt: skip
def test_a_bad_command_line_gets_one_line_and_leaves_nothing(shell: Shell, words: list[str], said: str) -> None:
    (shell.folder / "a.file").write_text("text", encoding="utf-8")
    (shell.folder / "a.folder").mkdir()
    before = sorted(shell.folder.rglob("*"))
    assert shell(*words) == 2
    assert said in shell.complaint
    assert shell.complaint.startswith("evo: ")
    assert shell.out.getvalue() == ""
    assert sorted(shell.folder.rglob("*")) == before


def test_a_message_is_shown_as_it_stands(shell: Shell) -> None:
    assert shell("verify", "[red]:smile:.cu") == 2
    assert shell.complaint.startswith("evo: verify: [red]:smile:.cu cannot be read")


PROGRAM = [sys.executable, "-c", "from evo.cli import main; main()"]  # the console script, wherever it lies


def evo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def small_run(tmp_path: Path) -> list[str]:
    """The words of a run that a table of measurements is enough for."""
    write_table(tmp_path / "table.jsonl.gz", suite="smoke")
    return [
        "backend=recorded", "backend.table=table.jsonl.gz", f"seeds=['{SEED}']", "stop.generations=1",
        "evolution.lambda_=2", "name=\"sweep's\"",
    ]  # fmt: skip


def test_a_reader_that_goes_away_gets_no_traceback(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*PROGRAM, "evolve", "--hydra-help"]
    gone = subprocess.run(command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (gone.returncode, gone.stderr) == (2, "")


def test_a_run_that_never_began_leaves_no_folder(tmp_path: Path, small_run: list[str]) -> None:
    failed = evo(tmp_path, "evolve", *small_run, "backend.table=nowhere")
    assert failed.returncode == 2
    assert failed.stderr.count("\n") == 1
    assert not list((tmp_path / "runs").iterdir())


def test_a_name_that_is_taken_is_told_with_the_way_to_go_on(tmp_path: Path, small_run: list[str]) -> None:
    words = [*small_run[:-1], "name=a"]
    first, second = (evo(tmp_path, "evolve", *words) for _ in range(2))
    told = "runs/a is there already, so this is runs/a-2; to go on with the earlier one: resume=runs/a"
    assert (first.returncode, second.returncode) == (0, 0)
    assert "already" not in first.stdout
    assert second.stdout.splitlines()[0] == told
    swept = evo(tmp_path, "evolve", *words, "-m", "rng_seed=0,1")
    assert swept.stdout.splitlines()[0] == told.replace("a-2", "a-3")


def exit_codes(sweep: Path) -> dict[str, int]:
    return {job.parent.name: json.loads(job.read_text())["exit_code"] for job in sorted(sweep.glob("*/exit.json"))}


def test_a_sweep_goes_on_after_a_job_that_fails_and_a_job_can_be_resumed(tmp_path: Path, small_run: list[str]) -> None:
    swept = evo(tmp_path, "evolve", *small_run, "-m", "answerer=replay,offline", "answerer.replay_from=nowhere")
    sweep = tmp_path / "runs" / "sweep's"
    assert exit_codes(sweep) == {"0": 2, "1": 0}
    assert swept.returncode == 2
    best = json.loads((sweep / "1" / "result.json").read_text())["best"]["geomean"]
    assert swept.stdout.splitlines()[-4:] == [
        "sweep: runs/sweep's",
        "job  state     exit  best    overrides",
        "0    failed    2     –       answerer=replay",
        f"1    finished  0     {best:.4f}  answerer=offline",
    ]
    said = "nowhere: no such run; expected the folder of a run, such as runs/first-try"
    assert swept.stderr.splitlines() == [f"evo: {said}"]
    assert said in (sweep / "0" / "evo.log").read_text()
    assert not (sweep / "0" / "result.json").exists()
    before = json.loads((sweep / "1" / "result.json").read_text())
    assert evo(tmp_path, "evolve", "resume=\"runs/sweep's/1\"", "stop.generations=2").returncode == 0
    after = json.loads((sweep / "1" / "result.json").read_text())
    assert (before["generations"], after["generations"]) == (1, 2)
    assert after["history"][: len(before["history"])] == before["history"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "table.jsonl.gz"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["sweep's"]


def test_a_folders_word_is_not_enough_to_run_a_models_code(tmp_path: Path, small_run: list[str]) -> None:
    words = [word for word in small_run if not word.startswith("name=")]
    begun = evo(tmp_path, "evolve", *words, "name=trusting", "backend.run_model_code=true")
    assert begun.returncode == 0
    resumed = evo(tmp_path, "evolve", "resume=trusting", "stop.generations=2")
    said = "evo: resume: the run was begun with backend.run_model_code=true; to allow or forbid that here, say it again"
    assert (resumed.returncode, resumed.stderr.splitlines()) == (2, [said])
    words_of_folder = tmp_path / "runs" / "trusting" / ".hydra" / "overrides.yaml"
    kept = words_of_folder.read_text(encoding="utf-8")
    words_of_folder.write_text(kept.replace("- backend.run", "- ++backend.run"), encoding="utf-8")
    assert evo(tmp_path, "evolve", "resume=trusting", "stop.generations=2").stderr.splitlines() == [said]
    words_of_folder.write_text(f"{kept}- +hydra.callbacks.x._target_=os.system\n", encoding="utf-8")
    strange = evo(tmp_path, "evolve", "resume=trusting", "backend.run_model_code=true")
    assert strange.returncode == 2
    assert "holds +hydra.callbacks.x._target_=os.system, which can run any code" in strange.stderr
    words_of_folder.write_text(kept, encoding="utf-8")
    allowed = evo(tmp_path, "evolve", "resume=trusting", "stop.generations=2", "backend.run_model_code=true")
    assert allowed.returncode == 0


def test_a_model_is_not_paid_for_kernels_that_would_be_refused(tmp_path: Path) -> None:
    refused = evo(tmp_path, "evolve", "backend=host", "answerer=openai", "answerer.model=m")
    assert refused.returncode == 2
    assert "to allow that, add backend.run_model_code=true" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_signal_ends_a_sweep_with_the_job_that_it_strikes(tmp_path: Path, small_run: list[str]) -> None:
    """A model's server sends it while it is asked; the reply that comes afterwards is kept."""
    struck: list[subprocess.Popen[str]] = []

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if struck:  # once: a second one ends it at once
                struck.pop().send_signal(signal.SIGTERM)
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "I see."}}
            body = json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        words = [
            *small_run, "-m", "rng_seed=0,1", "answerer=openai", "answerer.model=m", "answerer.api_key_env=''",
            f"answerer.base_url=http://127.0.0.1:{server.server_port}", "answerer.concurrency=1",
        ]  # fmt: skip
        process = subprocess.Popen(
            [*PROGRAM, "evolve", *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        struck.append(process)
        out, errors = process.communicate(timeout=120)
        server.shutdown()
        thread.join()
    assert (process.returncode, errors) == (128 + signal.SIGTERM, "")
    assert exit_codes(tmp_path / "runs" / "sweep's") == {"0": 128 + signal.SIGTERM}
    assert out.splitlines()[-3:] == [
        "job  state        exit  best    overrides",
        "0    interrupted  143   0.6481  rng_seed=0",
        "1    not started  –     –       rng_seed=1",
    ]
    result = json.loads((tmp_path / "runs" / "sweep's" / "0" / "result.json").read_text())
    assert (result["stop_reason"], result["evaluations"]) == ("interrupted by SIGTERM", 1)
    with read_archive(RunFolder(tmp_path / "runs" / "sweep's" / "0")) as archive:
        # Where the signal is slow to arrive, one more question is under way by then.
        assert [reply.text for reply in archive.replies()] in (["I see."], ["I see."] * 2)


def test_a_search_leaves_the_device_to_its_children(tmp_path: Path, small_run: list[str]) -> None:
    """A process that has touched CUDA cannot be forked, and a context of its own would stand beside the worker's."""
    program = f"""
import json, sys
from rich.console import Console
from evo.cli import run
quiet = Console(quiet=True)
code = run(["evolve", *{small_run!r}], quiet, quiet)
torch = sys.modules.get("torch")
touched = [name for name in ("cupy", "flash_attn_interface") if name in sys.modules]
print(json.dumps([code, touched, torch is not None and torch.cuda.is_initialized()]))
"""
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(said.stdout.splitlines()[-1]) == [0, [], False]
