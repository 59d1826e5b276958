"""The manifest: what a candidate says of itself, in TOML, in a comment before its first line of code."""

from dataclasses import dataclass
from enum import StrEnum


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
