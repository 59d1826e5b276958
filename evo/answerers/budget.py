"""What answers may cost: reserved before a call, settled after it, and never exceeded."""

import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from evo.answerers.answerer import AnswererError

_log = logging.getLogger(__name__)
_WARN_AT: Final = (0.5, 0.8)


class BudgetExhausted(AnswererError):
    """The next call could cost more than is left. Nothing was sent; the run ends here."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="raise stop.spend_usd to go on", retryable=False)


@dataclass(frozen=True, kw_only=True)
class Price:
    """US dollars per million tokens. Raises ValueError for what is negative or not finite."""

    prompt_usd: float = 0.0
    completion_usd: float = 0.0

    def __post_init__(self) -> None:
        for price in (self.prompt_usd, self.completion_usd):
            if not (math.isfinite(price) and price >= 0):
                raise ValueError(f"a price of {price} USD per million tokens; expected a finite number of at least 0")

    def cost_usd(self, *, prompt_tokens: int, completion_tokens: int) -> float:
        """The price of that many tokens."""
        return (prompt_tokens * self.prompt_usd + completion_tokens * self.completion_usd) / 1e6


class Charge:
    """One call's share of the budget: what it may cost at most, until it is settled."""

    def __init__(self, reserved_usd: float) -> None:
        self._usd = reserved_usd

    @property
    def usd(self) -> float:
        """What will be charged."""
        return self._usd

    def settle(self, usd: float) -> None:
        """Charge what the call did cost; without this it is charged in full, as a lost reply may have been billed."""
        self._usd = usd


class Budget:
    """A hard cap in US dollars, shared by threads. `limit_usd` None: no cap, but the spend is counted."""

    def __init__(self, *, limit_usd: float | None = None, spent_usd: float = 0.0) -> None:
        if limit_usd is not None and not (math.isfinite(limit_usd) and limit_usd >= 0):
            raise ValueError(f"a budget of {limit_usd} USD; expected a finite number of at least 0")
        self._limit_usd = limit_usd
        self._spent_usd = spent_usd
        self._reserved_usd = 0.0
        self._calls = 0
        self._changed = threading.Condition()

    @property
    def limit_usd(self) -> float | None:
        """The cap."""
        return self._limit_usd

    @property
    def spent_usd(self) -> float:
        """What settled calls cost, with what an earlier part of the run had spent."""
        with self._changed:
            return self._spent_usd

    @contextmanager
    def reserve(self, usd: float) -> Iterator[Charge]:
        """A charge of at most `usd`, settled when the block ends. Waits while calls under way may leave enough.

        Raises BudgetExhausted where even their end cannot.
        """
        with self._changed:
            while not self._fits(self._spent_usd + self._reserved_usd + usd):
                if not self._calls:
                    raise BudgetExhausted(
                        f"the next call may cost {usd:.4f} USD; {self._spent_usd:.4f} of {self._limit_usd} are spent"
                    )
                self._changed.wait()
            self._reserved_usd += usd
            self._calls += 1
        charge = Charge(usd)
        try:
            yield charge
        finally:
            self._settle(reserved_usd=usd, spent_usd=charge.usd)

    def _fits(self, usd: float) -> bool:
        return self._limit_usd is None or usd <= self._limit_usd

    def _settle(self, *, reserved_usd: float, spent_usd: float) -> None:
        with self._changed:
            before, after = self._spent_usd, self._spent_usd + spent_usd
            self._spent_usd = after
            self._calls -= 1
            self._reserved_usd = self._reserved_usd - reserved_usd if self._calls else 0.0  # no rounding is left over
            self._changed.notify_all()
        for share in _WARN_AT:
            if self._limit_usd and before < share * self._limit_usd <= after:
                _log.warning("%.0f %% of the budget is spent: %.4f of %s USD", share * 100, after, self._limit_usd)
