"""Any server that speaks OpenAI's protocol, through OpenAI's package. Its errors stop here."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

import openai

from evo.answerers.answerer import AnswererError, Reply, Request, ToolCall, Usage
from evo.answerers.budget import Budget, Price
from evo.answerers.exchange import Exchange
from evo.answerers.failure import READING_ERRORS, Failure, failure_of
from evo.answerers.wire import Api, ErrorResponse, Turn, WantedCall, Wishes, read_response, request_body
from evo.prompt import estimate_tokens
from evo.tools.bench import Bench

_log = logging.getLogger(__name__)
_DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"
_BACK_OFF_MAX_S: Final = 60.0
_MESSAGE_LENGTH_MAX: Final = 500


@dataclass(frozen=True, kw_only=True)
class OpenAISettings:
    """Which server, which model, and how to ask. The key is not among them: only where to find it."""

    model: str
    base_url: str | None = None  # None: OpenAI's own
    api_key_env: str = "OPENAI_API_KEY"  # "" for a server that needs no key
    api: Api = Api.CHAT
    max_tokens: int = 32768  # of a reply
    temperature: float | None = None  # None here and below: as the server has it
    rng_seed: int | None = None  # each request gets this plus its number
    timeout_s: float = 900.0  # without a byte from the server
    max_retries: int = 5
    price: Price = field(default_factory=Price)


class OpenAIAnswerer:
    """Asks the server; one instance may be shared by threads.

    A parameter that the server rejects by name is left out, or goes by its other name, from then on. Failures that may
    pass are retried: after the time that the server names, however long, or else after 1, 2, 4 … 60 seconds. Every
    call is reserved in the budget beforehand at the most that it may cost. With a bench, the model may call its tools
    before it replies.
    """

    def __init__(
        self,
        settings: OpenAISettings,
        *,
        environment: Mapping[str, str],
        budget: Budget,
        bench: Bench | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises AnswererError for a key that is not there, a base URL that is none, a budget without a price."""
        if budget.limit_usd is not None and settings.price == Price():
            raise AnswererError(
                "a budget in USD, and no price to count it by",
                hint="set answerer.usd_per_million_prompt_tokens and answerer.usd_per_million_completion_tokens",
                retryable=False,
            )
        self._settings = settings
        self._key = _key(environment, settings.api_key_env)
        self._base_url = _normal_base_url(settings.base_url or _DEFAULT_BASE_URL)
        self._budget = budget
        self._bench = bench
        self._sleep = sleep
        self._clock = clock
        self._client = openai.OpenAI(
            api_key=self._key or "none", base_url=self._base_url, timeout=settings.timeout_s, max_retries=0
        )
        self._rejected: frozenset[str] = frozenset()
        self._learning = threading.Lock()

    @property
    def description(self) -> str:
        """The model and the server."""
        return f"openai: {self._settings.model} at {self._base_url} ({self._settings.api})"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def answer(self, request: Request) -> Reply:
        """The server's reply. Raises AnswererError, and BudgetExhausted where the budget does not allow the call.

        Where tools may be called, raises EnvironmentFault too.
        """
        tab = _Tab()
        try:
            return self._converse(request, tab)
        except AnswererError as error:
            error.usage, error.tool_calls = tab.usage, tuple(tab.calls)
            raise

    def _converse(self, request: Request, tab: "_Tab") -> Reply:
        """The reply that the model gives after its calls of tools, if there are any."""
        bench = self._bench
        exchange = Exchange(self._settings.api, request.prompt, bench.tools if bench else ())
        while True:
            may_call = bench is not None and len(tab.calls) < bench.limit
            turn = self._turn(request, exchange, tab, may_call=may_call)
            if bench is None or not may_call or not turn.calls:
                calls = tuple(tab.calls)
                return replace(turn.reply, usage=tab.usage, used_tools=bool(calls), tool_calls=calls)
            exchange.add(turn, _run(bench, turn.calls, request.parent_sources[0], tab))

    def _turn(self, request: Request, exchange: Exchange, tab: "_Tab", *, may_call: bool) -> Turn:
        """What the server says next, asked again where that may help."""
        retries = 0
        while True:
            outcome = self._ask(request, exchange, tab, may_call=may_call)
            if isinstance(outcome, Turn):
                return outcome
            if outcome.rejected:
                self._leave_out(outcome.rejected)
                continue
            message = self._redacted(outcome.message)
            if not outcome.retryable or retries >= self._settings.max_retries:
                tried = f" after {retries + 1} attempts" if retries else ""
                raise AnswererError(f"{message}{tried}", hint=outcome.hint, retryable=outcome.retryable)
            self._wait(outcome, message, retries)
            retries += 1

    def _ask(self, request: Request, exchange: Exchange, tab: "_Tab", *, may_call: bool) -> Turn | Failure:
        settings = self._settings
        wishes = self._wishes(request, may_call=may_call)
        rejected = self._rejected
        body = request_body(settings.api, exchange.body, wishes, rejected)
        worst_usd = settings.price.cost_usd(
            prompt_tokens=estimate_tokens(exchange.text), completion_tokens=settings.max_tokens
        )
        with self._budget.reserve(worst_usd) as charge:
            try:
                # Not chat.completions.create: one road for both protocols, also in versions without responses.
                response = self._client.post(settings.api.path, body=body, cast_to=object)
                turn = read_response(
                    settings.api, response, sent=exchange.text, model=settings.model, price=settings.price
                )
            except (openai.OpenAIError, ErrorResponse, *READING_ERRORS) as error:
                failure = failure_of(error, sent=wishes.optional(settings.api, rejected), now=self._clock())
                lost_usd = worst_usd if failure.may_be_billed else 0.0
                charge.settle(lost_usd)
                tab.usage += Usage(cost_usd=lost_usd, estimated=lost_usd > 0.0)
                return failure
            charge.settle(turn.reply.usage.cost_usd)
            tab.usage += turn.reply.usage
            return turn

    def _wishes(self, request: Request, *, may_call: bool) -> Wishes:
        settings = self._settings
        return Wishes(
            model=settings.model,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            rng_seed=None if settings.rng_seed is None else (settings.rng_seed + request.number) % 2**31,
            tool_choice="none" if self._bench is not None and not may_call else None,
        )

    def _leave_out(self, parameter: str) -> None:
        with self._learning:
            if parameter not in self._rejected:
                self._rejected |= {parameter}
                _log.warning("%s does not take %s: asked without it from now on", self._settings.model, parameter)

    def _wait(self, failure: Failure, message: str, retries: int) -> None:
        wait_s = min(2.0**retries, _BACK_OFF_MAX_S) if failure.wait_s is None else failure.wait_s
        whose = "" if failure.wait_s is None else ", as the server asks"
        _log.warning("%s; asking again in %.2f s%s", message, wait_s, whose)
        self._sleep(wait_s)

    def _redacted(self, message: str) -> str:
        """The message in one line without the key, which some servers quote."""
        line = " ".join(message.split())
        return (line.replace(self._key, "[key]") if self._key else line)[:_MESSAGE_LENGTH_MAX]


@dataclass(kw_only=True)
class _Tab:
    """What one question has cost and called so far."""

    usage: Usage = field(default_factory=Usage)
    calls: list[ToolCall] = field(default_factory=list)


def _run(bench: Bench, wanted: Sequence[WantedCall], parent_source: str, tab: _Tab) -> list[str]:
    """The result of each call; those beyond the limit are not made. The last result says how many calls are left."""
    results = []
    for call in wanted:
        if len(tab.calls) < bench.limit:
            tab.calls.append(bench.call(call.name, call.arguments, parent_source=parent_source, order=len(tab.calls)))
            results.append(tab.calls[-1].result)
        else:
            results.append(f"not run: {bench.limit} calls were allowed")
    left = bench.limit - len(tab.calls)
    advice = f"{left} of {bench.limit} calls are left" if left else "no call is left: answer now, in the form asked for"
    return [*results[:-1], f"{results[-1]}\n\n({advice})"]


def _key(environment: Mapping[str, str], name: str) -> str:
    """The key, "" where none is needed."""
    if not name:
        return ""
    key = environment.get(name, "").strip()
    if not key:
        raise AnswererError(
            f"the environment variable {name} holds no key",
            hint="export it; for a server that needs no key, set answerer.api_key_env=''",
            retryable=False,
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise AnswererError(
            f"the key in {name} holds a blank or a character that no key has", hint="copy it again", retryable=False
        )
    return key


def _normal_base_url(url: str) -> str:
    """The URL that /chat/completions is put after: no slash at its end, and /v1 where it has no path at all."""
    bare = url.strip().rstrip("/")
    for api in Api:
        bare = bare.removesuffix(api.path).rstrip("/")
    hint = "expected http://HOST[:PORT][/v1] or https://…, as in http://localhost:8000/v1"
    try:
        parts = urlsplit(bare)
        has_host = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or True)
    except ValueError:
        has_host = False
    if not has_host:
        shown = url.rpartition("@")[2].partition("?")[0]  # without a password and a key in a query
        raise AnswererError(f"answerer.base_url is {shown!r}", hint=hint, retryable=False)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise AnswererError(
            f"answerer.base_url for {parts.hostname} holds a password, a query or a fragment",
            hint=f"{hint}; a key belongs in the environment variable that answerer.api_key_env names",
            retryable=False,
        )
    return bare if parts.path else f"{bare}/v1"
