"""Serves the replies of an earlier run again, by the number of the mutation."""

from collections.abc import Callable

from evo.answerers.answerer import AnswererError, Reply, Request


class ReplayAnswerer:
    """Looks replies up; `find` gives the reply to (number, attempt), or None where there is none."""

    def __init__(self, find: Callable[[int, int], Reply | None], *, origin: str) -> None:
        self._find = find
        self._origin = origin

    @property
    def description(self) -> str:
        """Where the replies come from."""
        return f"replay: recorded replies from {self._origin}, by the number of the question"

    def answer(self, request: Request) -> Reply:
        """The recorded reply. Raises AnswererError where none was recorded."""
        reply = self._find(request.number, request.attempt)
        if reply is None:
            raise AnswererError(
                f"{self._origin} has no reply to question {request.number}, attempt {request.attempt}",
                hint="a replay serves only what was recorded; stop the run there, or choose another answerer",
                retryable=False,
            )
        return reply
