"""The pages of runs that may be going on: made when they are asked for, and again once their files have changed."""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evo.report.account import Account
from evo.report.page import Page, live_page, overview_page, trouble_page
from evo.report.reading import read_account
from population.archive_lock import living_writer
from population.faults import RunFault
from population.run_folder import RunFolder

OVERVIEW = "/"
_REST = 10  # a page that took t seconds to make stands for 10 t at least: watching must not slow the search down

_Stamp = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Served:
    """A page as a server sends it."""

    body: bytes
    policy: str
    tag: str  # equal for equal bodies


@dataclass(frozen=True, kw_only=True)
class _Made:
    stamp: _Stamp
    at_s: float
    took_s: float
    told: Account | str  # or why it cannot be told now
    page: Page


class Watch:
    """Pages by address: one run's at "/", or an overview there and the runs below it. For several threads."""

    def __init__(self, runs: Mapping[str, RunFolder], clock: Callable[[], float] = time.monotonic) -> None:
        self._several = len(runs) > 1
        addresses = [f"/run/{place}" for place in range(1, len(runs) + 1)] if self._several else [OVERVIEW]
        self._runs = dict(zip(addresses, runs.values(), strict=True))
        self._names = dict(zip(self._runs, runs, strict=True))
        self._clock = clock
        self._made: dict[str, _Made] = {}
        self._together: tuple[tuple[_Made, ...], Page] | None = None
        self._making = threading.Lock()

    def page(self, address: str) -> Served | None:
        """The page at an address; None where there is none."""
        if address in self._runs:
            with self._making:
                return _served(self._of_run(address).page)
        if address == OVERVIEW:
            with self._making:
                return _served(self._overview())
        return None

    def _overview(self) -> Page:
        made = {address: self._of_run(address) for address in self._runs}
        parts = tuple(made.values())
        if self._together is None or not _same(self._together[0], parts):
            accounts = {address: each.told for address, each in made.items() if isinstance(each.told, Account)}
            troubles = {address: each.told for address, each in made.items() if isinstance(each.told, str)}
            self._together = parts, overview_page(accounts, troubles, self._names)
        return self._together[1]

    def _of_run(self, address: str) -> _Made:
        run, before = self._runs[address], self._made.get(address)
        start = self._clock()
        if before is not None and start - before.at_s < _REST * before.took_s:
            return before
        stamp = _stamp(run)
        if before is None or before.stamp != stamp:
            told, page = self._tell(address, run)
            end = self._clock()
            self._made[address] = _Made(stamp=stamp, at_s=end, took_s=end - start, told=told, page=page)
        return self._made[address]

    def _tell(self, address: str, run: RunFolder) -> tuple[Account | str, Page]:
        try:
            account = read_account(run, now=time.time())
        except (RunFault, OSError) as fault:
            return str(fault), trouble_page(self._names[address], str(fault), several=self._several)
        return account, live_page(account, self._names[address], several=self._several)


def _same(before: tuple[_Made, ...], now: tuple[_Made, ...]) -> bool:
    return all(one is other for one, other in zip(before, now, strict=True))


def _stamp(run: RunFolder) -> _Stamp:
    """Changes with whatever a page tells: the archive, its journal, the result, the checkpoints and the writer."""
    journal = run.archive.with_name(f"{run.archive.name}-wal")
    marks: list[object] = [living_writer(run)]
    for path in (run.archive, journal, run.result, run.checkpoints):
        try:
            status = path.stat()
        except OSError:
            marks.append(None)
        else:
            marks.append((status.st_mtime_ns, status.st_size))
    return tuple(marks)


def _served(page: Page) -> Served:
    body = page.html.encode("utf-8")
    return Served(body=body, policy=page.policy, tag=f'"{hashlib.sha256(body).hexdigest()[:32]}"')
