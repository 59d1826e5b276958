"""OpenAI's protocols on the wire: the bodies of requests, and what servers answer, of which nothing is believed."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from evo.answerers.answerer import Reply, Usage
from evo.answerers.budget import Price
from evo.prompt import estimate_tokens

_TOKENS_MAX: Final = 10**9
_REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
_LENGTH_REASONS: Final = frozenset({"length", "max_tokens", "max_output_tokens"})


class Api(StrEnum):
    """The protocol that is spoken."""

    CHAT = "chat"
    RESPONSES = "responses"

    @property
    def path(self) -> str:
        """Relative to the base URL."""
        return "/chat/completions" if self is Api.CHAT else "/responses"

    @property
    def limit_names(self) -> tuple[str, ...]:
        """The names under which servers take the reply's length limit, the one to try first ahead."""
        return ("max_tokens", "max_completion_tokens") if self is Api.CHAT else ("max_output_tokens",)


class MalformedResponse(Exception):
    """The server's answer is no completion."""


class ErrorResponse(Exception):
    """An error came with the status of a success; `status` is the one that it names, if any."""

    def __init__(self, message: str, *, status: int | None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is asked of the server besides the prompt; None leaves it to the server."""

    model: str
    max_tokens: int
    temperature: float | None = None
    rng_seed: int | None = None
    tool_choice: str | None = None

    def optional(self, api: Api, rejected: Collection[str]) -> dict[str, Any]:
        """The parameters that a server may reject, less those that it did."""
        limit = next((name for name in api.limit_names if name not in rejected), None)
        wishes: dict[str, Any] = {"temperature": self.temperature, "tool_choice": self.tool_choice}
        if api is Api.CHAT:
            wishes["seed"] = self.rng_seed
        if limit:
            wishes[limit] = self.max_tokens
        return {name: wish for name, wish in wishes.items() if wish is not None and name not in rejected}


@dataclass(frozen=True, kw_only=True)
class WantedCall:
    """A call of a tool that the model asks for, in its own words."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What a server said: a reply, or calls that are wanted first. `output` is how it goes back to the server."""

    reply: Reply
    calls: tuple[WantedCall, ...]
    output: tuple[Mapping[str, Any], ...]


def request_body(
    api: Api, said: Mapping[str, Any], wishes: Wishes, rejected: Collection[str]
) -> dict[str, Any]:
    """The JSON body that asks for one reply. `n` is never sent: one question, one reply."""
    return {"model": wishes.model, **said, **wishes.optional(api, rejected)}


def read_response(api: Api, response: object, *, sent: str, model: str, price: Price) -> Turn:
    """What a response to `sent` says. Raises MalformedResponse where it says nothing, ErrorResponse for an error.

    Text in a reasoning field counts where the content is empty. Where the server does not say what it used, or says
    zero, bytes / 3 stands in and the usage is marked as estimated.
    """
    if not isinstance(response, Mapping):
        raise MalformedResponse(f"expected a JSON object, got {str(response)[:200]!r}")
    if response.get("error"):
        raise _error(response["error"])
    said = _chat(response) if api is Api.CHAT else _responses(response)
    named = response.get("model")
    reply = Reply(
        text=encodable(said.text),
        model=encodable(named) if isinstance(named, str) and named else model,
        finish_reason=said.finish_reason,
        usage=_usage(response.get("usage"), sent, said, price),
    )
    return Turn(reply=reply, calls=said.calls, output=said.output)


def _error(error: object) -> ErrorResponse:
    code = error.get("code") if isinstance(error, Mapping) else None
    return ErrorResponse(f"an error in place of a completion: {error}", status=code if type(code) is int else None)


@dataclass(frozen=True, kw_only=True)
class _Said:
    text: str
    reasoning: str
    finish_reason: str
    calls: tuple[WantedCall, ...]
    output: tuple[Mapping[str, Any], ...]


def _chat(response: Mapping[str, Any]) -> _Said:
    choices = response.get("choices")
    if not (isinstance(choices, list) and choices and isinstance(choices[0], Mapping)):
        raise MalformedResponse("the response has no choices")
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise MalformedResponse("the first choice has no message")
    thoughts = {name: encodable(_text(message.get(name))) for name in _REASONING_FIELDS}
    reasoning = next(filter(None, thoughts.values()), "")
    content, refusal = _text(message.get("content")), _text(message.get("refusal"))
    refused = bool(refusal and not content)
    wanted = enumerate(_parts(message.get("tool_calls")))
    calls = tuple(_wanted(call.get("id"), place, call.get("function")) for place, call in wanted)
    echoed = [{"id": call.id, "type": "function", "function": _echo(call)} for call in calls]
    return _Said(
        text=refusal if refused else content or reasoning,
        reasoning=reasoning if content or refused else "",
        finish_reason="refusal" if refused else _finish(choice.get("finish_reason")),
        calls=calls,
        output=({"role": "assistant", "content": encodable(content), **_given(thoughts), "tool_calls": echoed},),
    )


def _responses(response: Mapping[str, Any]) -> _Said:
    output = response.get("output")
    if not isinstance(output, list):
        raise MalformedResponse("the response has no output")
    items = [item for item in output if isinstance(item, Mapping)]
    parts = [part for item in items if item.get("type") == "message" for part in _parts(item.get("content"))]
    refusal = "".join(_text(part.get("refusal")) for part in parts)
    text = "".join(_text(part.get("text")) for part in parts)
    reasoning = "".join(_text(item.get("summary")) for item in items if item.get("type") == "reasoning")
    details = response.get("incomplete_details")
    reason = details.get("reason") if response.get("status") == "incomplete" and isinstance(details, Mapping) else None
    refused = bool(refusal and not text)
    calls: list[WantedCall] = []
    echoed: list[Mapping[str, Any]] = []
    for item in items:  # in their order: a server wants its reasoning back right before the call that it led to
        if item.get("type") == "function_call":
            calls.append(_wanted(item.get("call_id"), len(calls), item))
            item = {**item, "call_id": calls[-1].id, **_echo(calls[-1])}
        echoed.append(json.loads(encodable(json.dumps(item, ensure_ascii=False))))
    return _Said(
        text=refusal if refused else text or reasoning,
        reasoning=reasoning if text or refused else "",
        finish_reason="refusal" if refused else _finish(reason),
        calls=tuple(calls),
        output=tuple(echoed),
    )


def _given(thoughts: Mapping[str, str]) -> dict[str, str]:
    """The fields that the server filled: one that gives a model's thoughts may want them back, another none at all."""
    return {name: thought for name, thought in thoughts.items() if thought}


def _wanted(given_id: object, place: int, function: object) -> WantedCall:
    fields = function if isinstance(function, Mapping) else {}
    arguments = fields.get("arguments")
    written = json.dumps(arguments) if isinstance(arguments, Mapping) else arguments
    call_id, name, text = (
        encodable(each) if isinstance(each, str) else "" for each in (given_id, fields.get("name"), written)
    )
    return WantedCall(id=call_id or f"call_{place}", name=name, arguments=text)


def _echo(call: WantedCall) -> dict[str, str]:
    """A call as a server takes it back: many refuse a name or arguments that are none, their own model's too."""
    try:
        whole = isinstance(json.loads(call.arguments), dict)
    except (ValueError, RecursionError):
        whole = False
    return {
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unnamed",
        "arguments": call.arguments if whole else "{}",
    }


def _finish(reason: object) -> str:
    if not isinstance(reason, str) or not reason:
        return "stop"
    return "length" if reason.lower() in _LENGTH_REASONS else encodable(reason)


def _text(content: object) -> str:
    """The text of a field that holds a string, null, or a list of typed parts."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in _parts(content) if isinstance(part.get("text"), str))


def _parts(content: object) -> list[Mapping[str, Any]]:
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def _usage(usage: object, sent: str, said: _Said, price: Price) -> Usage:
    fields = usage if isinstance(usage, Mapping) else {}
    prompt_tokens = _count(fields, "prompt_tokens", "input_tokens")
    completion_tokens = _count(fields, "completion_tokens", "output_tokens")
    written = estimate_tokens("".join((said.text, said.reasoning, *(call.arguments for call in said.calls))))
    estimated = not prompt_tokens or (not completion_tokens and written > 0)
    prompt_tokens = prompt_tokens or estimate_tokens(sent)
    completion_tokens = completion_tokens or written
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=price.cost_usd(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens),
        estimated=estimated,
    )


def _count(fields: Mapping[str, Any], *names: str) -> int:
    """The first of the counts that is a whole number and can be one of tokens; 0 where none is."""
    counts = (fields.get(name) for name in names)
    return next((count for count in counts if type(count) is int and 0 < count <= _TOKENS_MAX), 0)


def encodable(text: str) -> str:
    """The text with a question mark for each lone surrogate: JSON can carry them, files cannot."""
    return text.encode("utf-8", "replace").decode()
