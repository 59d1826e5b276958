"""A whole run made up: every table filled as a search fills it, with kernels of a real size and no judge."""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from evo.data import seed_folder
from evo.evaluation_records import record_evaluation
from evo.history import Attempt, Outcome
from evo.keeping import ATTEMPT_EVENT
from evo.run_settings import SETTINGS_EVENT
from evo.suites import load_suite
from fitness.evaluation import Environment, Evaluation, ScenarioTiming, Status
from fitness.evaluation_key import source_sha256
from fitness.scenario import Suite
from population.archive import Archive, create_archive
from population.atomic_file import strict_json
from population.individual import Individual
from population.records import EventRecord, QuestionRecord, ReplyRecord
from population.run_folder import RunFolder
from questions.bank import load_bank, shipped_bank_path
from questions.question import Question

LAMBDA = 8
_PARENTS = 6  # the best few have the children
_FAILS = 0.25
_FAILURES = (Status.COMPILE_ERROR, Status.INCORRECT, Status.RUNTIME_ERROR, Status.TIMEOUT)
_CHANGED_LINES = 12
_CALLS = 11  # timed calls of each side, as on a GPU
_ENVIRONMENT = Environment(
    backend="cuda", device="made up", driver="1", compiler="NVRTC 13.0", baseline="fa3", baseline_version="3.0.0"
)


@dataclass(frozen=True, kw_only=True)
class _Judged:
    individual: Individual
    geomean: float
    speedups: tuple[float, ...]


@dataclass(kw_only=True)
class _Breeding:
    archive: Archive
    suite: Suite
    rng: random.Random
    questions: Sequence[Question]
    style: str
    best: list[_Judged] = field(default_factory=list)

    def seed(self) -> None:
        """The seed kernel, a little over half as fast as the baseline."""
        source = (seed_folder() / "mma.cu").read_text(encoding="utf-8")
        individual = Individual.from_source(source, birth=-1, generation=0, operator="seed")
        self._keep(individual, tuple(self.rng.uniform(0.4, 0.7) for _ in self.suite.scenarios), failure=None)

    def child(self, number: int) -> None:
        """One question, one reply, one child, measured."""
        parent = self.rng.choice(self.best)
        question = self.rng.choice(self.questions)
        generation = number // LAMBDA + 1
        child = Individual.from_source(
            self._changed(parent.individual.source, number), birth=number, generation=generation, operator="mutate",
            parent_ids=(parent.individual.id,), question_id=question.id,
        )  # fmt: skip
        self.archive.record_question(QuestionRecord(
            number=number, question_id=question.id, moment="any", layer=str(question.layer), style=self.style,
            text=question.text, origin="bank",
        ))  # fmt: skip
        self.archive.record_reply(ReplyRecord(
            number=number, attempt=0, text="the edit", model="made up", finish_reason="stop", prompt_tokens=12_000,
            completion_tokens=3_000, cost_usd=0.05, estimated=False,
        ))  # fmt: skip
        failure = self.rng.choice(_FAILURES) if self.rng.random() < _FAILS else None
        drift = self.rng.gauss(-0.02, 0.02)
        self._keep(child, tuple(s * math.exp(drift + self.rng.gauss(0, 0.01)) for s in parent.speedups), failure)
        asked = Attempt(
            number=number, generation=generation, operator="mutate", parent_ids=child.parent_ids,
            question_id=question.id, layer=str(question.layer), moment="any", style=self.style,
            hint=question.text, outcome=Outcome.CHILD, detail=f"changed {_CHANGED_LINES} lines", claim="",
            child_id=child.id,
        )  # fmt: skip
        self.archive.record_event(EventRecord(kind=ATTEMPT_EVENT, record=strict_json(asked.to_json())))

    def _changed(self, source: str, number: int) -> str:
        lines = source.splitlines()
        for place in self.rng.sample(range(60, len(lines)), _CHANGED_LINES):  # behind the manifest
            lines[place] = f"{lines[place].partition('  // tried')[0]}  // tried {number} & <kept>"
        return "\n".join(lines)

    def _keep(self, individual: Individual, speedups: tuple[float, ...], failure: Status | None) -> None:
        evaluation = self._evaluation(individual.source, speedups, failure)
        self.archive.record_individual(individual)
        record_evaluation(self.archive, individual.id, evaluation)
        if evaluation.geomean is not None:
            self.best.append(_Judged(individual=individual, geomean=evaluation.geomean, speedups=speedups))
            self.best = sorted(self.best, key=lambda each: -each.geomean)[:_PARENTS]

    def _evaluation(self, source: str, speedups: tuple[float, ...], failure: Status | None) -> Evaluation:
        digest = source_sha256(source)
        geomean = None if failure else math.exp(math.fsum(map(math.log, speedups)) / len(speedups))
        pairs = zip(self.suite.scenarios, speedups, strict=True)
        return Evaluation(
            key=hashlib.sha256(f"key of {digest}".encode()).hexdigest(), source_sha256=digest, suite=self.suite.name,
            status=failure or Status.PASSED, reason="made up to fail" if failure else "", environment=_ENVIRONMENT,
            timings=() if failure else tuple(self._timing(scenario.name, speedup) for scenario, speedup in pairs),
            geomean=geomean, geomean_low=geomean, geomean_high=geomean,
        )  # fmt: skip

    def _timing(self, scenario: str, speedup: float) -> ScenarioTiming:
        candidate_ms = tuple(self.rng.uniform(0.99, 1.01) / speedup for _ in range(_CALLS))
        return ScenarioTiming(
            scenario=scenario, candidate_ms=candidate_ms, baseline_ms=(1.0,) * _CALLS,
            candidate_median_ms=1 / speedup, baseline_median_ms=1.0, speedup=speedup, speedup_low=speedup * 0.997,
            speedup_high=speedup * 1.003, tflops=100.0, baseline_difference_max=0.0, baseline_difference_rms=0.0,
            roof_ms=0.6,
        )  # fmt: skip


def breed(
    folder: RunFolder, *, individuals: int, suite: str = "core26", style: str = "question", rng_seed: int = 0
) -> None:
    """Fill a run's folder that `create_run_folder` made: one seed, and children to the number of individuals."""
    settings = {"suite": suite, "style.kind": style, "answerer.kind": "openai", "rng_seed": rng_seed, "baseline": "fa3"}
    with create_archive(folder) as archive:
        archive.record_event(EventRecord(kind=SETTINGS_EVENT, key="run", record=strict_json(settings)))
        breeding = _Breeding(
            archive=archive, suite=load_suite(suite), rng=random.Random(rng_seed),
            questions=tuple(load_bank([shipped_bank_path()])), style=style,
        )  # fmt: skip
        breeding.seed()
        for first in range(0, individuals - 1, LAMBDA):
            with archive.transaction():
                for number in range(first, min(first + LAMBDA, individuals - 1)):
                    breeding.child(number)
