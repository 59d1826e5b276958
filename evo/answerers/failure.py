"""What a failed call means: whether to ask again and when, what to leave out, what to tell the user."""

import email.utils
import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Final

import openai

from evo.answerers.wire import ErrorResponse, MalformedResponse

READING_ERRORS: Final = (json.JSONDecodeError, UnicodeDecodeError, RecursionError, MalformedResponse)
_QUOTA: Final = re.compile(r"insufficient[_ ](?:quota|balance|funds|credit)|billing|exceeded your current quota", re.I)
_TOO_LONG: Final = re.compile(r"context[_ ]length|maximum context|too large|at most|less than or equal|exceeds", re.I)
_TOOLS: Final = re.compile(r"(?<![a-z])tools?(?![a-z])", re.I)
_RETRIED: Final = frozenset({408, 409, 429})
_WAIT_MAX_S: Final = 1e9  # thirty years: beyond it the header is no time
_HINTS: Final[Mapping[int, str]] = {
    401: "check the key in the environment variable that answerer.api_key_env names",
    402: "the account has no credit left; top it up",
    403: "the key in the environment variable that answerer.api_key_env names may not use this model",
    404: "check answerer.base_url, which for most servers ends in /v1, and answerer.model",
    413: "lower style.budget_tokens",
}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A call without a reply."""

    message: str
    hint: str
    retryable: bool = False
    wait_s: float | None = None  # what the server asks for before the next attempt
    rejected: str | None = None  # the parameter that the server does not take
    may_be_billed: bool = False  # the request arrived, and the reply was lost on its way


def failure_of(error: Exception, *, sent: Collection[str], now: float) -> Failure:
    """The meaning of an error of the SDK, or of reading the response.

    `sent` are the optional parameters of the request, `now` the time in seconds since the epoch.
    """
    if isinstance(error, openai.APITimeoutError):
        return Failure(
            message="the server did not answer in time",
            hint="raise answerer.timeout_s, or see whether the server is alive",
            retryable=True,
            may_be_billed=not _never_sent(error),
        )
    if isinstance(error, openai.APIConnectionError):
        return Failure(
            message=f"the connection failed: {error.__cause__ or error}",
            hint="check answerer.base_url and the network",
            retryable=True,
            may_be_billed=not _never_sent(error),
        )
    if isinstance(error, openai.APIStatusError):
        return _status_failure(error, sent=sent, now=now)
    if isinstance(error, ErrorResponse):
        return Failure(message=str(error), hint=_hint(error.status), retryable=_is_retried(error.status))
    return Failure(
        message=f"the server's response cannot be read: {error}",
        hint="see whether answerer.base_url is a server that speaks this protocol",
        retryable=True,
        may_be_billed=True,
    )


def _never_sent(error: openai.APIConnectionError) -> bool:
    """Whether no connection was made. By the cause's name: the HTTP library differs between versions of the SDK."""
    return type(error.__cause__).__name__ in ("ConnectError", "ConnectTimeout", "PoolTimeout")


def _status_failure(error: openai.APIStatusError, *, sent: Collection[str], now: float) -> Failure:
    status, said = error.status_code, error.message
    wait_s = _server_wait_s(error.response.headers, now)
    message = f"the server answered {status}: {said}"
    if status in (400, 422):
        rejected = _rejected_parameter(error, sent)
        return Failure(message=message, hint=_bad_request_hint(said), rejected=rejected)
    if status == 429 and _is_quota(error, wait_s):
        return Failure(message=message, hint="the quota is used up: waiting does not help; raise it at the provider")
    return Failure(message=message, hint=_hint(status), retryable=_is_retried(status), wait_s=wait_s)


def _bad_request_hint(said: str) -> str:
    if _TOOLS.search(said):
        return "the model or its server takes no tools: set answerer.tools=false, or switch its tool calling on"
    if _TOO_LONG.search(said):
        return "lower style.budget_tokens or answerer.max_tokens"
    return "the request does not suit the model"


def _is_retried(status: int | None) -> bool:
    return status is None or status in _RETRIED or status >= 500


def _hint(status: int | None) -> str:
    otherwise = "the server is overloaded or broken; try later" if _is_retried(status) else "see what the server says"
    return otherwise if status is None else _HINTS.get(status, otherwise)


def _is_quota(error: openai.APIStatusError, wait_s: float | None) -> bool:
    """Whether a 429 is for good. A wait in the header is a promise that outweighs words in the message, not a code."""
    if any(_QUOTA.search(name) for name in (error.code, error.type) if name):
        return True
    return wait_s is None and _QUOTA.search(error.message) is not None


def _rejected_parameter(error: openai.APIStatusError, sent: Collection[str]) -> str | None:
    """The parameter of the request that the server names, in its own field or else first in its message."""
    if error.code == "context_length_exceeded":
        return None
    said = error.message
    named = (error.param or "").rpartition(".")[2]
    if named not in sent:
        places = {name: re.search(rf"(?<!\w){name}(?!\w)", said) for name in sent}
        found = {name: place.start() for name, place in places.items() if place}
        named = min(found, key=found.__getitem__, default="")
    if not named or ("max_" in named and _TOO_LONG.search(said)):
        return None
    return named


def _server_wait_s(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that Retry-After asks for, in whichever of its forms; None where it says nothing sensible."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if text is None or seconds is not None:
        return seconds
    try:
        date = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number <= _WAIT_MAX_S else None
