"""A manifest worked out for scenarios: which builds a suite needs, and how each scenario launches its build."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fitness.evaluation import Status
from fitness.expressions import Expression
from fitness.faults import CandidateFault, invalid
from fitness.identifiers import DEVICE_FIELD
from fitness.manifest import LaunchSpec, Manifest, TensorMapSpec, WorkspaceSpec
from fitness.plan import Build, LaunchPlan, ScenarioPlan, SuitePlan, TensorMapPlan, WorkspacePlan
from fitness.scenario import Scenario, Suite

MAX_BUILDS = 32
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024
MAX_SHARED_BYTES = 232448  # Hopper's and Blackwell's dynamic shared memory for one block
MAX_WORKSPACE_BYTES = 2**40
MAX_BOX = 256
SWIZZLES = (0, 32, 64, 128)
ELEMENT_BYTES = 2


def plan_scenario(manifest: Manifest, scenario: Scenario, sm_count: int) -> ScenarioPlan:
    """How one scenario is built and launched on a device of `sm_count` multiprocessors.

    Raises CandidateFault: UNSUPPORTED for a scenario outside `supports`, INVALID for a value out of its range.
    """
    return _Planner(manifest).plan(scenario, sm_count)


def plan_suite(manifest: Manifest, suite: Suite, sm_count: int) -> SuitePlan:
    """The plans of every scenario, and of the edges that the candidate supports.

    Raises CandidateFault: UNSUPPORTED where a scenario that is timed lies outside `supports`, INVALID for a value out
    of its range or more than 32 builds.
    """
    planner = _Planner(manifest)
    planner.builds(suite)
    return SuitePlan(
        scenarios=tuple(planner.plan(scenario, sm_count) for scenario in suite.scenarios),
        edges=tuple(planner.plan(edge, sm_count) for edge in suite.edges if planner.supports(edge)),
    )


def plan_builds(manifest: Manifest, suite: Suite) -> tuple[Build, ...]:
    """The distinct builds of a suite and its supported edges, in the order of their first use; asks for no device.

    Raises CandidateFault: UNSUPPORTED where a scenario that is timed lies outside `supports`, INVALID for more than 32
    builds.
    """
    return _Planner(manifest).builds(suite)


class _Planner:
    """One manifest, each of its expressions parsed once. Its faults name the scenario."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._expressions: dict[tuple[str, str], Expression] = {}

    def supports(self, scenario: Scenario) -> bool:
        with _naming(scenario):
            return self._fields(scenario) is not None

    def builds(self, suite: Suite) -> tuple[Build, ...]:
        edges = tuple(edge for edge in suite.edges if self.supports(edge))
        if not (suite.scenarios or edges):
            least = f"none of the {len(suite.edges)} shapes of {suite.name} lies within supports"
            raise CandidateFault(Status.UNSUPPORTED, f"{least} = {self._manifest.supports!r}")
        builds = tuple(dict.fromkeys(self._named_build(scenario) for scenario in (*suite.scenarios, *edges)))
        if len(builds) > MAX_BUILDS:
            raise invalid(f"suite {suite.name} needs {len(builds)} builds; at most {MAX_BUILDS} are allowed")
        return builds

    def plan(self, scenario: Scenario, sm_count: int) -> ScenarioPlan:
        with _naming(scenario):
            fields = self._supported_fields(scenario)
            build = self._build(scenario, fields)
            fields[DEVICE_FIELD] = sm_count
            specs = self._manifest
            launches = [self._launch(i, spec, fields) for i, spec in enumerate(specs.launches, start=1)]
            if not any(launches):
                raise invalid("every [[launch]] is left out by its `when`; nothing would run")
            return ScenarioPlan(
                scenario=scenario,
                build=build,
                tensor_maps=tuple(self._tensor_map(i, s, fields) for i, s in enumerate(specs.tensor_maps, start=1)),
                workspaces=tuple(self._workspace(i, s, fields) for i, s in enumerate(specs.workspaces, start=1)),
                launches=tuple(launch for launch in launches if launch is not None),
            )

    def _fields(self, scenario: Scenario) -> dict[str, int] | None:
        """The scenario's fields, the knobs and the defines; None outside `supports`.

        Defines are worked out only where `supports` does not already say no: they may divide by what it rules out.
        """
        fields = scenario.fields() | {knob.name: knob.value for knob in self._manifest.knobs}
        supports = self._expression("supports", self._manifest.supports)
        if supports.names <= fields.keys() and not supports.evaluate(fields):
            return None
        for name, text in self._manifest.defines:
            fields[name] = self._expression(f"[defines] {name}", text).evaluate(fields)
        return fields if supports.evaluate(fields) else None

    def _supported_fields(self, scenario: Scenario) -> dict[str, int]:
        fields = self._fields(scenario)
        if fields is None:
            raise CandidateFault(Status.UNSUPPORTED, f"it lies outside supports = {self._manifest.supports!r}")
        return fields

    def _named_build(self, scenario: Scenario) -> Build:
        with _naming(scenario):
            return self._build(scenario, self._supported_fields(scenario))

    def _build(self, scenario: Scenario, fields: Mapping[str, int]) -> Build:
        names = (*(knob.name for knob in self._manifest.knobs), *(name for name, _ in self._manifest.defines))
        return Build(defines=tuple((name, fields[name]) for name in names), element_type=scenario.element_type)

    def _tensor_map(self, number: int, spec: TensorMapSpec, fields: Mapping[str, int]) -> TensorMapPlan | None:
        place = f"[[tensor_map]] {number}"
        if not self._expression(f"{place}: when", spec.when).evaluate(fields):
            return None
        head_dim, heads, seqlen, batch = (
            self._value(f"{place}: box[{i}]", text, fields, low=1, high=MAX_BOX) for i, text in enumerate(spec.box)
        )
        swizzle = self._expression(f"{place}: swizzle", spec.swizzle).evaluate(fields)
        if swizzle not in SWIZZLES:
            raise invalid(f"{place}: swizzle is {swizzle}; expected one of {', '.join(map(str, SWIZZLES))}")
        row_bytes = head_dim * ELEMENT_BYTES
        if row_bytes % 16 or (swizzle and row_bytes > swizzle):
            most = f" and at most the swizzle of {swizzle}" if swizzle else ""
            raise invalid(f"{place}: box[0] is {head_dim}, {row_bytes} bytes; expected a multiple of 16 bytes{most}")
        return TensorMapPlan(tensor=spec.tensor, box=(head_dim, heads, seqlen, batch), swizzle=swizzle)

    def _workspace(self, number: int, spec: WorkspaceSpec, fields: Mapping[str, int]) -> WorkspacePlan | None:
        place = f"[[workspace]] {number}"
        if not self._expression(f"{place}: when", spec.when).evaluate(fields):
            return None
        size = self._value(f"{place}: bytes", spec.bytes, fields, low=1, high=MAX_WORKSPACE_BYTES)
        return WorkspacePlan(size=size, zeroed=spec.zeroed)

    def _launch(self, number: int, spec: LaunchSpec, fields: Mapping[str, int]) -> LaunchPlan | None:
        place = f"[[launch]] {number} ({spec.kernel})"
        if not self._expression(f"{place}: when", spec.when).evaluate(fields):
            return None
        grid = self._sizes(f"{place}: grid", spec.grid, MAX_GRID, fields)
        block = self._sizes(f"{place}: block", spec.block, MAX_BLOCK, fields)
        if (threads := block[0] * block[1] * block[2]) > MAX_BLOCK_THREADS:
            raise invalid(f"{place}: block is {list(block)}, {threads} threads; expected at most {MAX_BLOCK_THREADS}")
        shared = self._value(f"{place}: shared_bytes", spec.shared_bytes, fields, low=0, high=MAX_SHARED_BYTES)
        return LaunchPlan(kernel=spec.kernel, grid=grid, block=block, shared_bytes=shared)

    def _sizes(
        self, place: str, texts: tuple[str, str, str], limits: tuple[int, int, int], fields: Mapping[str, int]
    ) -> tuple[int, int, int]:
        x, y, z = (self._value(f"{place}[{i}]", texts[i], fields, low=1, high=limits[i]) for i in range(3))
        return x, y, z

    def _value(self, place: str, text: str, fields: Mapping[str, int], *, low: int, high: int) -> int:
        value = self._expression(place, text).evaluate(fields)
        if not low <= value <= high:
            raise invalid(f"{place} is {value}, from {text!r}; expected {low} to {high}")
        return value

    def _expression(self, place: str, text: str) -> Expression:
        if (place, text) not in self._expressions:
            self._expressions[place, text] = Expression(text, place=place)
        return self._expressions[place, text]


@contextmanager
def _naming(scenario: Scenario) -> Iterator[None]:
    try:
        yield
    except CandidateFault as fault:
        raise CandidateFault(fault.status, f"scenario {scenario.name}: {fault.reason}") from fault
