"""A manifest worked out in numbers: which builds a suite needs, and how each scenario launches its build.

`plan_suite` lives in fitness/planner.py; these are its results, as the compiler and the backends read them.
"""

from dataclasses import dataclass

from fitness.scenario import ElementType, Scenario


@dataclass(frozen=True, kw_only=True)
class Build:
    """One compilation: the -D flags in the manifest's order. Equal builds share a binary."""

    defines: tuple[tuple[str, int], ...]  # knobs, then defines
    element_type: ElementType

    @property
    def flags(self) -> tuple[str, ...]:
        """The -D flags, EVO_BF16 or EVO_FP16 first."""
        return (f"-DEVO_{self.element_type.upper()}=1", *(f"-D{name}={value}" for name, value in self.defines))


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """One kernel launch in numbers, within the limits that the contract checks."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int


@dataclass(frozen=True, kw_only=True)
class TensorMapPlan:
    """One TMA descriptor: dims (head_dim, heads or kv_heads, seqlen, batch), element strides 1."""

    tensor: str  # q | k | v | o
    box: tuple[int, int, int, int]
    swizzle: int  # 0 | 32 | 64 | 128 bytes


@dataclass(frozen=True, kw_only=True)
class WorkspacePlan:
    """One scratch buffer; `size` in bytes."""

    size: int
    zeroed: bool


@dataclass(frozen=True, kw_only=True)
class ScenarioPlan:
    """Everything a backend needs to run one scenario. A slot that `when` left out holds None."""

    scenario: Scenario
    build: Build
    tensor_maps: tuple[TensorMapPlan | None, ...]
    workspaces: tuple[WorkspacePlan | None, ...]
    launches: tuple[LaunchPlan, ...]

    @property
    def has_leftovers(self) -> bool:
        """Whether some workspace holds, when a call begins, what the candidate did not ask for."""
        return any(each is not None and not each.zeroed for each in self.workspaces)


@dataclass(frozen=True, kw_only=True)
class SuitePlan:
    """The plans of a suite's scenarios and of those edges that the candidate supports."""

    scenarios: tuple[ScenarioPlan, ...]
    edges: tuple[ScenarioPlan, ...]

    @property
    def builds(self) -> tuple[Build, ...]:
        """The distinct builds, in the order of their first use."""
        return tuple(dict.fromkeys(plan.build for plan in (*self.scenarios, *self.edges)))
