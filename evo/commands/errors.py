"""Where foreseen errors end: one line, and an exit code that says whose fault it is."""

import logging
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from evo.answerers.answerer import AnswererError
from evo.prompt import PromptError
from evo.settings import ConfigError
from evo.stop import Interrupted
from evo.trace.trace_file import TraceError
from fitness.faults import EnvironmentFault
from population.faults import RunFault
from questions.entry import BankError
from questions.sampler import NoQuestionError
from questions.sampler_state import SamplerStateError

BAD_ENVIRONMENT = 2
_INTERRUPTED = 130  # 128 + SIGINT

_FORESEEN = (
    AnswererError, BankError, ConfigError, EnvironmentFault, NoQuestionError, OSError, PromptError, RunFault,
    SamplerStateError, TraceError,
)  # fmt: skip  # OSError: a full disk, or a folder without rights, met while a run's files were written

logger = logging.getLogger(__name__)


def guarded(command: Callable[[], int], errors: Console) -> int:
    """The command's exit code, or that of the error that ended it: 2 for what the environment or its user got wrong."""
    try:
        return command()
    except BrokenPipeError:
        raise  # nobody reads any more, errors included
    except _FORESEEN as error:
        if not logger.hasHandlers():  # where no log is kept, Python would show the traceback
            logging.getLogger().addHandler(logging.NullHandler())
        logger.error("ended by %s", error, exc_info=error)
        complain(errors, str(error))
        return BAD_ENVIRONMENT
    except Interrupted as stop:
        complain(errors, stop.reason)
        return stop.exit_code
    except KeyboardInterrupt:
        complain(errors, "interrupted")
        return _INTERRUPTED


def complain(errors: Console, message: str) -> None:
    """One line about what is wrong."""
    errors.print(Text(f"evo: {' '.join(message.split())}"), soft_wrap=True)
