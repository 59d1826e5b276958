"""The seam to programs that draw figures. They are told of a run, and a run never depends on them."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from evo.stop import StopSearch

_MOST_SAID = 200  # characters of what went wrong; the log has all of it

_log = logging.getLogger(__name__)


class Logger(Protocol):
    """Who is told of a run's figures."""

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """The figures after evaluation number `step`; each step is told once over all parts of a run."""

    def close(self) -> None:
        """This part of the run is over."""


class Silent:
    """Nobody is told."""

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Forgiving:
    """Tells another logger, and gives it up with one warning when it first fails: a run goes on without."""

    def __init__(self, name: str, open_logger: Callable[[], Logger], warn: Callable[[str], None]) -> None:
        self._name = name
        self._warn = warn
        self._logger: Logger = Silent()
        self._attempt(lambda: self._set(open_logger()))

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """As the other does."""
        self._attempt(lambda: self._logger.log(figures, step))

    def close(self) -> None:
        """As the other does."""
        self._attempt(lambda: self._logger.close())

    def _set(self, logger: Logger) -> None:
        self._logger = logger

    def _attempt(self, call: Callable[[], None]) -> None:
        try:
            call()
        except StopSearch:  # a signal, which may strike anywhere
            raise
        except Exception as error:  # noqa: BLE001  # others' code: whatever is wrong with it, the run is worth more
            self._logger = Silent()
            _log.warning("%s failed", self._name, exc_info=error)
            said = _first_sentence(str(error))
            self._warn(f"logger={self._name} failed, and the run goes on without it: {type(error).__name__}: {said}")


def _first_sentence(text: str) -> str:
    sentence = (text.splitlines() or [""])[0].split(". ")[0]
    return sentence if len(sentence) <= _MOST_SAID else sentence[: _MOST_SAID - 1] + "…"
