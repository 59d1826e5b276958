"""What is known of drafts: each compiled or measured when a tool first asks for it."""

from typing import Protocol

from evo.judging import EvaluatesAll
from fitness.evaluation import Evaluation
from fitness.evaluator import Compiled


class Compiles(Protocol):
    """Whoever compiles sources for the device; `Evaluator` is one."""

    def compile(self, source: str) -> Evaluation | Compiled:
        """The builds of a source, or the record of one that does not come through. Raises EnvironmentFault."""


class DraftJudge:
    """The search's own evaluator, asked about drafts. Used by one thread at a time; raises EnvironmentFault as it does.

    `compiler` is None where nothing is compiled, as on the recorded backend.
    """

    def __init__(self, *, evaluator: EvaluatesAll, compiler: Compiles | None) -> None:
        self._evaluator = evaluator
        self._compiler = compiler
        self._measured: dict[str, Evaluation] = {}

    def measured(self, source: str) -> Evaluation:
        """The draft's evaluation, made once."""
        if source not in self._measured:
            [self._measured[source]] = self._evaluator.evaluate_all([source])
        return self._measured[source]

    def compiled(self, source: str) -> Compiled | str:
        """The draft's builds, or why there are none, in words."""
        if self._compiler is None:
            return "not available: nothing is compiled on this backend"
        compiled = self._compiler.compile(source)
        return compiled if isinstance(compiled, Compiled) else refusal(compiled)


def refusal(evaluation: Evaluation) -> str:
    """Why a draft did not pass, in words."""
    return f"{evaluation.status}: {evaluation.reason}"
