"""The three verbs of a search by files, for a program: ask, tell, evaluate. The commands run the same code.

    prompts = ask("runs/first", n=8, options=["suite=core26", "seeds=[mma]"])    # [] until the seed is measured
    tell("runs/first", {prompt.key: Reply(text=answer(prompt.text), model="mine") for prompt in prompts})
    evaluate("runs/first")
    waiting = tell("runs/first", {})

Each step may be repeated, and may be cut off anywhere. All raise ConfigError and the faults of `evo.commands.errors`.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from evo import mailbox_run
from evo.answerers.answerer import Reply
from evo.answerers.mailbox import Inbox, Key
from evo.mailbox_search import Prompt, Waiting
from evo.measuring import find_work, measure, settle_here
from evo.run_options import locate_run
from evo.settings import ConfigError
from evo.workbench import open_evaluator
from fitness.evaluation import Evaluation
from fitness.fork_server import start_fork_server
from fitness.probe import probe_machine
from fitness.worker import PRELOAD

logger = logging.getLogger(__name__)


def ask(run: str | Path, n: int | None = None, options: Sequence[str] = ()) -> list[Prompt]:
    """The prompts that wait for a reply, after beginning the run or its next generation where none is under way.

    `n` is how many questions a new generation has (None: evolution.lambda_). Empty where the seeds or the last
    generation are not measured yet, and where the search is over: `tell` says which. What was found and could not be
    used, or is worth knowing, is logged as a warning.
    """
    if n is not None and n < 1:
        raise ConfigError(f"n={n}: expected a whole number of at least 1")
    waiting = mailbox_run.ask(str(run), options, count=n, console=Console(quiet=True))
    for note in waiting.notes:
        logger.warning("%s", note)
    return list(waiting.prompts)


def tell(run: str | Path, replies: Mapping[Key, Reply], *, partial: bool = False) -> Waiting:
    """What the run waits for, after it took in the replies, by their prompts' keys, and what was measured.

    With `partial`, questions that are still without a reply count as unanswered from now on.
    """
    inbox = Inbox(replies=replies)
    return mailbox_run.tell(str(run), lambda _search: inbox, partial=partial, console=Console(quiet=True))


def evaluate(run: str | Path, options: Sequence[str] = ()) -> dict[str, Evaluation]:
    """The evaluations made by this call, by the candidates' ids; what was measured before is not measured again.

    A single shot's parents are, beside its children, into measured/again; they are no part of what is returned.

    A signal that ends it early raises Interrupted; what was measured until then is kept.
    """
    work = find_work(locate_run(str(run)), options)
    if work.is_done:
        return {}
    start_fork_server(PRELOAD)
    machine = probe_machine()
    done = measure(work, settle_here(work, machine), machine, open_evaluator, lambda _name, _evaluation: None)
    if done.interruption is not None:
        raise done.interruption
    return dict(done.evaluations)
