"""What has happened in a lineage, in plain numbers and text: all that the choice of a moment looks at."""

import math
from dataclasses import dataclass

NO_CANDIDATE = "NO_CANDIDATE"  # the reply held no kernel, or the parent's own
STATUSES = (
    NO_CANDIDATE,
    "INVALID",
    "UNSUPPORTED",
    "COMPILE_ERROR",
    "RUNTIME_ERROR",
    "TIMEOUT",
    "INCORRECT",
    "STOPPED_EARLY",
    "PASSED",
)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One reply and what became of it. Raises ValueError for an unknown status, or numbers that contradict it."""

    status: str  # one of STATUSES
    geomean: float | None = None  # speedup against the baseline; only where PASSED
    parent_geomean: float | None = None
    noise: float = 0.0  # half the 95 % interval of the geomean, as a share of it
    suspicion: str = ""  # why this win was audited besides its gain; "" where it was not
    claim: str = ""  # what the reply declared (questions/claims.py reads it): limit, done; "" where nothing

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"attempt: status {self.status!r}; expected one of {', '.join(STATUSES)}")
        if (self.geomean is None) == (self.status == "PASSED"):
            raise ValueError(f"attempt: {self.status} with geomean {self.geomean}")
        for value in (self.geomean, self.parent_geomean):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"attempt: geomean {value}; expected a finite number above 0")
        if not 0 <= self.noise < math.inf:
            raise ValueError(f"attempt: noise {self.noise}; expected a finite share of at least 0")


@dataclass(frozen=True, kw_only=True)
class History:
    """A lineage up to now: the attempts from which the parent came and those made on it since, the latest last.

    `start_geomean` is where the lineage stood before the first of them (None: nothing had passed). `sources` are the
    kernels along the lineage, the oldest first. `parents` is how many kernels the next question is about.
    """

    attempts: tuple[Attempt, ...] = ()
    start_geomean: float | None = None
    sources: tuple[str, ...] = ()
    parents: int = 1
