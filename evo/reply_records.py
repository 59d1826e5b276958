"""Replies, and what was paid for without one, on their way into the archive and out of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from evo.answerers.answerer import AnswererError, Reply, Request, ToolCall, Usage
from population.archive import Archive
from population.atomic_file import strict_json
from population.records import EventRecord, ReplyRecord, SpendRecord

TOOL_CALL_EVENT = "tool_call"
_TOOL_SECONDS = "tool_s"
_TOOLS, _NO_REPLY = "tools", "without a reply"  # what was spent, before the name of the request
_OF_REQUEST = re.compile(rf"(?:{_TOOLS}|{_NO_REPLY}) (\d+)/(\d+), \d+", re.ASCII)


def keep_reply(archive: Archive, request: Request, reply: Reply) -> Reply:
    """The reply as the archive holds it from now on, the calls of tools on its way with it.

    The first reply to a request stays. Raises ArchiveError.
    """
    held = archive.reply(request.number, request.attempt)
    if held is not None:
        return to_reply(held)
    reply = replace(reply, text=_writable(reply.text))
    with archive.transaction():
        archive.record_reply(_to_record(request, reply))
        _record_calls(archive, request, reply.tool_calls)
    return reply


def keep_unanswered(archive: Archive, request: Request, error: AnswererError) -> None:
    """Have the archive hold what a request cost that brought no reply. Raises ArchiveError."""
    if error.usage == Usage() and not error.tool_calls:
        return
    spent = {
        "prompt_tokens": error.usage.prompt_tokens,
        "completion_tokens": error.usage.completion_tokens,
        "cost_usd": error.usage.cost_usd,
    }
    with archive.transaction():
        _record_calls(archive, request, error.tool_calls)
        _record_spend(archive, f"{_NO_REPLY} {_name(request)}", spent)


def spent_on_request(key: str) -> tuple[int, int] | None:
    """The number and the attempt of the request that a spend record's key names; None where it names none."""
    named = _OF_REQUEST.fullmatch(key)
    return (int(named[1]), int(named[2])) if named else None


def to_reply(record: ReplyRecord) -> Reply:
    """A reply as the archive holds it."""
    usage = Usage(
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        cost_usd=record.cost_usd,
        estimated=record.estimated,
    )
    return Reply(
        text=record.text,
        model=record.model,
        finish_reason=record.finish_reason,
        usage=usage,
        used_tools=record.used_tools,
    )


def _to_record(request: Request, reply: Reply) -> ReplyRecord:
    return ReplyRecord(
        number=request.number,
        attempt=request.attempt,
        text=reply.text,
        model=reply.model,
        finish_reason=reply.finish_reason,
        prompt_tokens=reply.usage.prompt_tokens,
        completion_tokens=reply.usage.completion_tokens,
        cost_usd=reply.usage.cost_usd,
        estimated=reply.usage.estimated,
        used_tools=reply.used_tools,
    )


def _record_calls(archive: Archive, request: Request, calls: Sequence[ToolCall]) -> None:
    for call in calls:
        record = {"number": request.number, "attempt": request.attempt, **asdict(call)}
        archive.record_event(EventRecord(kind=TOOL_CALL_EVENT, record=strict_json(record)))
    _record_spend(archive, f"{_TOOLS} {_name(request)}", {_TOOL_SECONDS: sum(call.seconds for call in calls)})


def _record_spend(archive: Archive, what: str, spent: Mapping[str, float]) -> None:
    earlier = sum(1 for _ in archive.spend()) if any(spent.values()) else 0
    for kind, amount in spent.items():
        if amount:  # a request without a reply may be put again, and cost again: each time has a key of its own
            archive.record_spend(SpendRecord(key=f"{what}, {earlier}", kind=kind, amount=amount))


def _name(request: Request) -> str:
    return f"{request.number}/{request.attempt}"


def _writable(text: str) -> str:
    """The text without lone surrogates: JSON may bring them, and no file can hold them."""
    return text.encode("utf-8", "replace").decode("utf-8")
