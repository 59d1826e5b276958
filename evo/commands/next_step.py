"""What a run by files waits for, in words, and the command that comes next."""

from rich.console import Console
from rich.text import Text

from evo.answerers.mailbox import mail_name
from evo.mailbox_search import Prompt, Waiting

_NAMES_SHOWN = 4


def show_waiting(waiting: Waiting, console: Console) -> None:
    """Say what could not be used, what is waited for, and what to do."""
    for line in (*(f"note: {note}" for note in waiting.notes), *_lines(waiting)):
        console.print(Text(line), soft_wrap=True)


def _lines(waiting: Waiting) -> list[str]:
    run = waiting.run
    if waiting.ended:
        return [f"the search is over: {waiting.ended}", f"result: {run.result}"]
    if waiting.prompts:
        names = _some([prompt.path.name for prompt in waiting.prompts])
        who = "" if waiting.model else " model=NAME"
        lines = [
            *(_asked_again(prompt) for prompt in waiting.prompts if prompt.unread),
            f"{_count(len(waiting.prompts), 'prompt')} in {run.outbox}: {names}",
            f"put each reply into {run.inbox} under the same name, then: evo tell {run.path}{who}",
        ]
        if waiting.candidates:
            lines.append(f"{_candidates(waiting)} can be measured meanwhile: {_evaluate(waiting)}")
        return lines
    if waiting.candidates:
        then = "ask" if waiting.generation is None else "tell"
        what = "the seed: " if waiting.generation is None else ""
        return [f"{what}{_candidates(waiting)}: {_evaluate(waiting)}, then: evo {then} {run.path}"]
    return [f"generation {waiting.generation} is complete; for the next questions: evo ask {run.path}"]


def _asked_again(prompt: Prompt) -> str:
    came = mail_name(prompt.number, prompt.attempt - 1)
    return f"the reply {came} came and cannot be read: {prompt.unread}; {prompt.path.name} asks once more"


def _evaluate(waiting: Waiting) -> str:
    """The command that measures, with the word that the run's own is not enough for."""
    return f"evo evaluate {waiting.run.path}{' backend.run_model_code=true' if waiting.run_model_code else ''}"


def _candidates(waiting: Waiting) -> str:
    again = f", beside {_plural(len(waiting.again), 'parent')} to be measured again" if waiting.again else ""
    return f"{_count(len(waiting.candidates), 'candidate')} in {waiting.run.pending}{again}"


def _count(number: int, noun: str) -> str:
    return f"{_plural(number, noun)} wait{'' if number > 1 else 's'}"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMES_SHOWN else f"{names[0]} to {names[-1]}"
