"""Serves the replies of an earlier run again, by the number of the mutation."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evo.answerers.answerer import AnswererError, Reply, Request, Usage


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


def read_replies(path: Path) -> dict[tuple[int, int], Reply]:
    """(number, attempt) to reply, from JSON Lines as `reply_line` writes them; a later line replaces an earlier one.

    Raises ValueError, which names the line, for anything else.
    """
    replies: dict[tuple[int, int], Reply] = {}
    with path.open(encoding="utf-8") as lines:
        for count, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                replies[_whole(record, "number"), _whole(record, "attempt")] = _reply(record)
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path}, line {count}: it is no recorded reply: {error!r}") from error
    return replies


def reply_line(number: int, attempt: int, reply: Reply) -> str:
    """One reply as a line of strict JSON, its end included."""
    usage = reply.usage
    record = {
        "number": number,
        "attempt": attempt,
        "text": reply.text,
        "model": reply.model,
        "finish_reason": reply.finish_reason,
        "used_tools": reply.used_tools,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cost_usd": usage.cost_usd,
            "estimated": usage.estimated,
        },
    }
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _reply(record: Mapping[str, Any]) -> Reply:
    for name in ("text", "model"):
        if not isinstance(record[name], str):
            raise TypeError(f"{name} is {record[name]!r}; expected a text")
    return Reply(
        text=record["text"],
        model=record["model"],
        finish_reason=str(record.get("finish_reason", "stop")),
        usage=Usage(**record.get("usage", {})),
        used_tools=bool(record.get("used_tools", False)),
    )


def _whole(record: Mapping[str, Any], name: str) -> int:
    number = record[name]
    if type(number) is not int:
        raise TypeError(f"{name} is {number!r}; expected a whole number")
    return number
