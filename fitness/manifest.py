"""The manifest: what a candidate says of itself, in TOML, in a comment before its first line of code."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from fitness.faults import CandidateFault, invalid
from fitness.identifiers import DEVICE_FIELD, SCENARIO_FIELDS, check_flag, check_identifier
from fitness.lexer import line_number
from fitness.manifest_comment import manifest_span
from fitness.tables import Table, as_expression

CONTRACT = 1
TARGETS = ("portable", "sm_80", "sm_90a", "sm_100a")
TENSORS = ("q", "k", "v", "o")
MAX_WORKSPACES = 4
MAX_TENSOR_MAPS = 16  # they travel by value, and a kernel's parameters have little room

_KEYS = ("contract", "name", "targets", "supports", "knobs", "defines", "tensor_map", "workspace", "launch")
_KNOB_KEYS = ("value", "choices", "layer")
_KNOB_VALUE = re.compile(r"""(?:(?<![\w-])value|"value"|'value')[ \t]*=[ \t]*([+-]?[0-9]\w*)""", re.ASCII)
_SENTINEL = 2**40  # no knob of a shipped kernel comes near


class Layer(StrEnum):
    """The layers of a kernel that a knob turns, the same six that questions are about."""

    ALGORITHM = "algorithm"
    SCHEDULE = "schedule"
    MEMORY = "memory"
    INSTRUCTIONS = "instructions"
    LAUNCH = "launch"
    MEASUREMENT = "measurement"


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A -D flag with the value in force, the values worth trying, and the layer it belongs to."""

    name: str
    value: int
    choices: tuple[int, ...]
    layer: Layer


@dataclass(frozen=True, kw_only=True)
class TensorMapSpec:
    """A TMA descriptor; `box` in expressions, in the order head_dim, heads, seqlen, batch."""

    tensor: str
    box: tuple[str, str, str, str]
    swizzle: str
    when: str = "1"


@dataclass(frozen=True, kw_only=True)
class WorkspaceSpec:
    """A scratch buffer of `bytes`, an expression."""

    bytes: str
    zeroed: bool = False
    when: str = "1"


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """One launch, in expressions; grid and block are filled up with "1" to three."""

    kernel: str
    grid: tuple[str, str, str]
    block: tuple[str, str, str]
    shared_bytes: str = "0"
    when: str = "1"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A manifest as it was written: names and expressions, nothing worked out yet."""

    contract: int
    name: str
    targets: tuple[str, ...]
    supports: str
    knobs: tuple[Knob, ...]
    defines: tuple[tuple[str, str], ...]
    tensor_maps: tuple[TensorMapSpec, ...]
    workspaces: tuple[WorkspaceSpec, ...]
    launches: tuple[LaunchSpec, ...]

    @property
    def portable(self) -> bool:
        """Whether the host backend can run it."""
        return "portable" in self.targets


@lru_cache(maxsize=256)  # a parent is read at every question about it, and reading takes milliseconds
def read_manifest(source: str) -> Manifest:
    """The manifest of a candidate. Raises CandidateFault (INVALID), which names the key, what it is and what to write.

    Every expression has been parsed, and uses only the names that its place allows.
    """
    start, end = manifest_span(source)
    # Empty lines in front make TOML's own line numbers those of the file.
    root = Table(_parse("\n" * (line_number(source, start) - 1) + source[start:end]), place="manifest", keys=_KEYS)
    contract = root.integer("contract")
    if contract != CONTRACT:
        raise invalid(f"contract is {contract}; this version knows contract {CONTRACT} only")
    knobs = tuple(_knob(name, content) for name, content in root.mapping("knobs").items())
    defines = _defines(root.mapping("defines"), knobs)
    names = (*SCENARIO_FIELDS, *(knob.name for knob in knobs), *(name for name, _ in defines))
    return Manifest(
        contract=contract,
        name=_name(root),
        targets=_targets(root),
        supports=root.expression("supports", names, default="1"),
        knobs=knobs,
        defines=defines,
        tensor_maps=_tensor_maps(root, names),
        workspaces=_workspaces(root, names),
        launches=_launches(root, names),
    )


def with_knobs(source: str, values: Mapping[str, int]) -> str:
    """The source with these knobs' values, every other byte as it was, and a value that stands there already too.

    Raises CandidateFault (INVALID) for a source without a readable manifest; ValueError for a knob that it lacks.
    """
    spans = _knob_spans(source)
    if unknown := values.keys() - spans.keys():
        raise ValueError(f"no knob is called {min(unknown)}; the manifest has {', '.join(spans) or 'none'}")
    changed = {name: value for name, value in values.items() if int(source[slice(*spans[name])], base=0) != value}
    return _replaced(source, {spans[name]: str(value) for name, value in changed.items()})


def without_knob_values(source: str) -> str:
    """The source with ? for every knob's value: equal for two sources that differ in nothing else."""
    return _replaced(source, dict.fromkeys(_knob_spans(source).values(), "?"))


def same_but_for_knobs(source: str, seed_source: str) -> bool:
    """Whether `source` is the seed, byte for byte, but for knob values that are among the seed's own choices."""
    seed = read_manifest(seed_source)
    try:
        values = {knob.name: knob.value for knob in read_manifest(source).knobs}
    except CandidateFault:
        return False
    offered = all(values.get(knob.name) in knob.choices for knob in seed.knobs)
    return offered and len(values) == len(seed.knobs) and with_knobs(seed_source, values) == source


def _parse(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also covers numbers too long for Python
        raise invalid(f"the manifest is not TOML: {str(error) or 'nested too deeply'}") from error


def _name(root: Table) -> str:
    name = root.text("name").strip()
    if not name or not name.isprintable():
        raise invalid(f"name is {name!r}; expected one line of printable text")
    return name


def _targets(root: Table) -> tuple[str, ...]:
    targets = root.strings("targets")
    if not targets or len(set(targets)) != len(targets) or not set(targets) <= set(TARGETS):
        raise invalid(f"targets is {list(targets)}; expected one or more of {', '.join(TARGETS)}, each once")
    return targets


def _knob(name: str, content: object) -> Knob:
    place = f"[knobs] {name}"
    check_flag(name, place)
    table = Table(content, place=place, keys=_KNOB_KEYS)
    value, choices, layer = table.integer("value"), table.integers("choices"), table.text("layer")
    if len(set(choices)) != len(choices):
        raise invalid(f"{place}: choices is {list(choices)}; expected distinct numbers")
    if value not in choices:
        raise invalid(f"{place}: value is not among choices; add it there or choose one of them")
    if layer not in tuple(Layer):
        raise invalid(f"{place}: layer is {layer!r}; expected one of {', '.join(Layer)}")
    return Knob(name=name, value=value, choices=choices, layer=Layer(layer))


def _defines(entries: Mapping[str, object], knobs: tuple[Knob, ...]) -> tuple[tuple[str, str], ...]:
    names = [*SCENARIO_FIELDS, *(knob.name for knob in knobs)]
    sizes = {"batch", "heads", "kv_heads", "seqlen_q", "seqlen_k"}
    defines = []
    for name, content in entries.items():
        place = f"[defines] {name}"
        check_flag(name, place)
        if name in names:
            raise invalid(f"{place}: a knob has the same name")
        expression = as_expression(content, place, names)
        if loose := expression.names_outside_comparisons & sizes:
            raise invalid(f"{place}: {min(loose)} may stand only inside a comparison, or as heads // kv_heads")
        defines.append((name, expression.text))
        names.append(name)
    return tuple(defines)


def _tensor_maps(root: Table, names: tuple[str, ...]) -> tuple[TensorMapSpec, ...]:
    tables = root.tables("tensor_map", ("tensor", "box", "swizzle", "when"))
    if len(tables) > MAX_TENSOR_MAPS:
        raise invalid(f"there are {len(tables)} [[tensor_map]] entries; at most {MAX_TENSOR_MAPS} are allowed")
    specs = []
    for table in tables:
        tensor = table.text("tensor")
        if tensor not in TENSORS:
            raise invalid(f"{table.place}: tensor is {tensor!r}; expected one of {', '.join(TENSORS)}")
        head_dim, heads, seqlen, batch = table.expressions("box", names, at_least=4, at_most=4)
        swizzle, when = table.expression("swizzle", names), table.expression("when", names, default="1")
        specs.append(TensorMapSpec(tensor=tensor, box=(head_dim, heads, seqlen, batch), swizzle=swizzle, when=when))
    return tuple(specs)


def _workspaces(root: Table, names: tuple[str, ...]) -> tuple[WorkspaceSpec, ...]:
    tables = root.tables("workspace", ("bytes", "zeroed", "when"))
    if len(tables) > MAX_WORKSPACES:
        raise invalid(f"there are {len(tables)} [[workspace]] entries; at most {MAX_WORKSPACES} are allowed")
    return tuple(
        WorkspaceSpec(
            bytes=table.expression("bytes", (*names, DEVICE_FIELD)),
            zeroed=table.flag("zeroed", default=False),
            when=table.expression("when", names, default="1"),
        )
        for table in tables
    )


def _launches(root: Table, names: tuple[str, ...]) -> tuple[LaunchSpec, ...]:
    tables = root.tables("launch", ("kernel", "grid", "block", "shared_bytes", "when"))
    if not tables:
        raise invalid("there is no [[launch]]; expected one or more")
    specs = []
    for table in tables:
        kernel, launch_names = table.text("kernel"), (*names, DEVICE_FIELD)
        check_identifier(kernel, f"{table.place}: kernel")
        grid_x, grid_y, grid_z = table.expressions("grid", launch_names, at_least=1, at_most=3)
        block_x, block_y, block_z = table.expressions("block", launch_names, at_least=1, at_most=3)
        specs.append(
            LaunchSpec(
                kernel=kernel,
                grid=(grid_x, grid_y, grid_z),
                block=(block_x, block_y, block_z),
                shared_bytes=table.expression("shared_bytes", launch_names, default="0"),
                when=table.expression("when", names, default="1"),
            )
        )
    return tuple(specs)


def _knob_spans(source: str) -> dict[str, tuple[int, int]]:
    """Where each knob's value stands in the source.

    TOML's reader gives no positions, so every number that looks like a value is replaced by one that tells its place,
    and the reader is asked which of them the knobs hold now.
    """
    knobs = read_manifest(source).knobs
    start, end = manifest_span(source)
    spans = [match.span(1) for match in _KNOB_VALUE.finditer(source, start, end)]
    marked = _replaced(source[:end], {span: str(_SENTINEL + i) for i, span in enumerate(spans)})
    tables = Table(_parse(marked[start:]), place="manifest", keys=_KEYS).mapping("knobs")
    found = {}
    for knob in knobs:
        value = Table(tables[knob.name], place=knob.name, keys=_KNOB_KEYS).integer("value")
        if value == knob.value or not 0 <= value - _SENTINEL < len(spans):
            raise invalid(f"[knobs] {knob.name}: its value cannot be found in the text; write value = {knob.value}")
        found[knob.name] = spans[value - _SENTINEL]
    return found


def _replaced(source: str, texts: Mapping[tuple[int, int], str]) -> str:
    parts, position = [], 0
    for (start, end), text in sorted(texts.items()):
        parts += [source[position:start], text]
        position = end
    return "".join([*parts, source[position:]])
