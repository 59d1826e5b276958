"""`evo evaluate`: measure a run's pending/ into measured/, on the machine that can."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rich.console import Console

from evo.console import head_grid, say, verdict
from evo.gpu_claim import on_held_gpus
from evo.measuring import find_work, measure, settle_here
from evo.run_options import locate_run
from evo.settings import ConfigError
from evo.workbench import open_evaluator
from fitness.evaluation import Evaluation
from fitness.fork_server import start_fork_server
from fitness.probe import probe_machine
from fitness.worker import PRELOAD

ALL_MEASURED, SOME_LEFT = 0, 1


def evaluate(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0 where everything is measured, 1 where a file could not be used, 128 + signal if interrupted.

    Raises ConfigError for a bad command line, EnvironmentFault where this machine cannot measure the run.
    """
    if not arguments or "=" in arguments[0] or arguments[0].startswith("-"):
        raise ConfigError("evaluate: no run named; expected evo evaluate RUN [backend.device=0 …]")
    work = find_work(locate_run(arguments[0]), arguments[1:])

    def tell_of(name: str, evaluation: Evaluation) -> None:
        say(console, f"{name}  {verdict(evaluation)}")

    def tell_again(name: str, evaluation: Evaluation) -> None:
        say(console, f"{name} again  {verdict(evaluation)}")

    for note in work.notes:
        say(console, f"note: {note}")
    if work.is_done:
        before = f"{work.measured_before} measured before, in {work.folder.measured}"
        say(console, f"nothing waits in {work.folder.pending}; {before}. Where the run is: evo tell {work.folder.path}")
        return SOME_LEFT if work.notes else ALL_MEASURED
    start_fork_server(PRELOAD)
    machine = probe_machine()
    with on_held_gpus(work.config, machine, partial(say, console)) as placed:
        here = replace(work, config=placed)
        settled = settle_here(here, machine)
        parents = [("parents again", str(len(work.again)))] if work.again else []
        console.print(head_grid(settled.choices[:3], [("candidates", str(len(work.sources))), *parents]))
        done = measure(here, settled, machine, open_evaluator, tell_of, tell_again)
    made, wanted = len(done.evaluations) + len(done.again), len(work.sources) + len(work.again)
    say(console, f"{made} of {wanted} measured into {work.folder.measured}")
    if done.interruption is not None:
        say(console, f"{done.interruption.reason}; the rest is measured when this is called again")
        return done.interruption.exit_code
    say(console, f"where the run is: evo tell {work.folder.path}")
    return SOME_LEFT if work.notes else ALL_MEASURED
