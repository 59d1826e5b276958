"""How strictly and for how long a candidate is judged. Part of an evaluation's key."""

from dataclasses import dataclass

from fitness.inputs import Distribution


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """The judge's settings. Raises ValueError for those that cannot be worked with."""

    distributions: tuple[Distribution, ...] = tuple(Distribution)  # of the inputs of every scenario and edge
    long_seqlen_k: int = 16384  # from this many keys on a reference is dear: whole on the first distribution alone
    warmups: int = 2  # calls of each side before the timed ones
    repeats: int = 20  # timed calls of each side, at most
    least_repeats: int = 5  # these are made even where the time is up
    scenario_budget_s: float = 5.0  # wall-clock time after which a scenario gets no further repeats
    precision: float = 0.0  # no more repeats once half the speedup's 95 % interval is below this share; 0: all of them
    bootstrap_draws: int = 2000
    call_timeout_s: float = 10.0  # for one call of the candidate, and for loading it
    harness_timeout_s: float = 300.0  # for one step of our own: a reference, the baseline's compilation

    def __post_init__(self) -> None:
        if not self.distributions:
            raise ValueError("judge: no distributions; at least one is needed to check anything")
        if not 1 <= self.least_repeats <= self.repeats or self.warmups < 0:
            raise ValueError(
                f"judge: {self.warmups} warmups, {self.least_repeats} to {self.repeats} repeats; "
                "expected warmups >= 0 and 1 <= least_repeats <= repeats"
            )
        if not (self.call_timeout_s > 0 and self.harness_timeout_s > 0 and self.scenario_budget_s >= 0):
            raise ValueError("judge: time limits must be positive numbers of seconds")
        if not 0 <= self.precision < 1:
            raise ValueError(f"judge: precision {self.precision}; expected a share of at least 0 and below 1")
        if self.bootstrap_draws < 1:
            raise ValueError(f"judge: {self.bootstrap_draws} bootstrap draws; expected at least 1")

    def judged_whole(self, seqlen_k: int) -> tuple[Distribution, ...]:
        """Those on which outputs of this many keys are judged whole; on the others some of their rows are."""
        return self.distributions[:1] if seqlen_k >= self.long_seqlen_k else self.distributions
