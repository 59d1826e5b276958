"""A compiled draft in little, and judges of drafts for the tests of tools."""

from collections.abc import Callable, Sequence
from pathlib import Path

from evo.tools.draft_judge import DraftJudge
from fitness.compiler import CompiledBuild
from fitness.evaluation import BuildReport, Evaluation, KernelResources
from fitness.evaluator import Compiled
from fitness.plan import Build, LaunchPlan, ScenarioPlan, SuitePlan
from fitness.scenario import ElementType, Scenario

SHORT, LONG = (
    Scenario(batch=1, heads=heads, kv_heads=heads, seqlen_q=128, seqlen_k=128, head_dim=64, causal=False)
    for heads in (2, 4)
)


def resources(kernel: str = "attention_forward", *, registers: int = 128, shared_bytes: int = 0) -> KernelResources:
    return KernelResources(
        kernel=kernel, registers=registers, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0,
        shared_bytes=shared_bytes,
    )  # fmt: skip


def compiled(
    *kernels: KernelResources, block: int = 128, shared_bytes: int = 0, binary: Path = Path("draft.cubin")
) -> Compiled:
    """Two scenarios of one build, which launch the same kernels on grids of 2 and 4 blocks."""
    build = Build(defines=(("HEAD_DIM", 64),), element_type=ElementType.BF16)
    plans = tuple(
        ScenarioPlan(
            scenario=scenario, build=build, tensor_maps=(), workspaces=(),
            launches=tuple(
                LaunchPlan(
                    kernel=each.kernel, grid=(scenario.heads, 1, 1), block=(block, 1, 1), shared_bytes=shared_bytes
                )
                for each in kernels
            ),
        )
        for scenario in (SHORT, LONG)
    )  # fmt: skip
    report = BuildReport(name="element=bf16", kernels=kernels, advisories=())
    return Compiled(
        source="a draft", plan=SuitePlan(scenarios=plans, edges=()), compile_s=0.1,
        builds=(CompiledBuild(build=build, binary=binary, report=report),),
    )  # fmt: skip


class FakeEvaluator:
    """Gives one verdict and one set of builds; `judged` holds what it was asked to measure."""

    def __init__(self, verdict: Evaluation, builds: Evaluation | Compiled | None = None) -> None:
        self.verdict = verdict
        self.builds = builds
        self.judged: list[str] = []

    def evaluate_all(
        self, sources: Sequence[str], on_done: Callable[[int, Evaluation], None] | None = None
    ) -> list[Evaluation]:
        self.judged.extend(sources)
        return [self.verdict for _ in sources]

    def compile(self, source: str) -> Evaluation | Compiled:
        assert self.builds is not None, "nobody was to compile"
        return self.builds


def judge_of(verdict: Evaluation, builds: Evaluation | Compiled | None = None) -> DraftJudge:
    evaluator = FakeEvaluator(verdict, builds)
    return DraftJudge(evaluator=evaluator, compiler=None if builds is None else evaluator)
