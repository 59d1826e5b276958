"""A scenario is one shape of attention; a suite is the list of scenarios that a candidate is judged on."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ElementType(StrEnum):
    """The type of the elements of q, k, v and o."""

    BF16 = "bf16"
    FP16 = "fp16"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One shape: q, o `[batch, seqlen_q, heads, head_dim]`; k, v `[batch, seqlen_k, kv_heads, head_dim]`.

    Raises ValueError for sizes that are not positive, or heads that kv_heads does not divide.
    """

    batch: int
    heads: int
    kv_heads: int
    seqlen_q: int
    seqlen_k: int
    head_dim: int
    causal: bool
    element_type: ElementType = ElementType.BF16

    def __post_init__(self) -> None:
        for name in ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "head_dim"):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(f"scenario: {name} is {size!r}; expected a whole number of at least 1")
        if self.heads % self.kv_heads:
            raise ValueError(f"scenario: {self.heads} heads do not divide into {self.kv_heads} kv_heads")

    @property
    def name(self) -> str:
        """Unique within any suite, and readable in a table."""
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads}"
        lengths = f"{self.seqlen_q}" if self.seqlen_q == self.seqlen_k else f"{self.seqlen_q}x{self.seqlen_k}"
        mask = "causal" if self.causal else "full"
        return f"b{self.batch} h{heads} s{lengths} d{self.head_dim} {mask} {self.element_type}"

    def fields(self) -> dict[str, int]:
        """The scenario as the names that a manifest's expressions may use."""
        return {
            "batch": self.batch,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "seqlen_q": self.seqlen_q,
            "seqlen_k": self.seqlen_k,
            "head_dim": self.head_dim,
            "causal": int(self.causal),
            "bf16": int(self.element_type is ElementType.BF16),
        }

    @property
    def flops(self) -> int:
        """Floating-point operations of the two products, 4 · head_dim for each visible (query, key) pair."""
        return 4 * self.batch * self.heads * self.head_dim * self.visible_pairs

    @property
    def visible_pairs(self) -> int:
        """(query, key) pairs that the mask leaves, per batch entry and head (bottom-right aligned when causal)."""
        if not self.causal:
            return self.seqlen_q * self.seqlen_k
        offset = self.seqlen_k - self.seqlen_q
        blind_rows = max(0, -offset)  # the first rows see no key where there are more queries than keys
        rows, first = self.seqlen_q - blind_rows, max(offset, 0) + 1
        return rows * first + rows * (rows - 1) // 2

    @property
    def bytes_moved(self) -> int:
        """The least traffic with device memory: each input read once, o and lse written once."""
        q_and_o = 2 * self.batch * self.seqlen_q * self.heads * self.head_dim
        k_and_v = 2 * self.batch * self.seqlen_k * self.kv_heads * self.head_dim
        return 2 * (q_and_o + k_and_v) + 4 * self.batch * self.heads * self.seqlen_q

    def to_json(self) -> dict[str, object]:
        """The constructor's arguments, as `from_json` takes them back."""
        sizes: dict[str, object] = {k: v for k, v in self.fields().items() if k not in ("causal", "bf16")}
        return sizes | {"causal": self.causal, "element_type": str(self.element_type)}

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> "Scenario":
        """The scenario that `to_json` wrote. Raises ValueError or TypeError for anything else."""
        arguments = dict(record)
        arguments["element_type"] = ElementType(str(arguments["element_type"]))
        return cls(**arguments)  # type: ignore[arg-type]  # __post_init__ checks the sizes


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The scenarios that a candidate is timed on; `edges` are checked for correctness too, and never timed.

    A suite of edges alone gives a verdict and no score. Raises ValueError for one without any shape, or one twice.
    """

    name: str
    scenarios: tuple[Scenario, ...]
    edges: tuple[Scenario, ...] = ()

    def __post_init__(self) -> None:
        if not (self.scenarios or self.edges):
            raise ValueError(f"suite {self.name}: it has no scenarios")
        names = [scenario.name for scenario in self.scenarios or self.edges]
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"suite {self.name}: listed twice: {', '.join(twice)}")


def edge_scenarios(scenarios: tuple[Scenario, ...]) -> tuple[Scenario, ...]:
    """Small awkward shapes for each (head_dim, element type) of a suite.

    Lengths that divide by nothing, one query, one key, more queries than keys (rows that see no key), grouped heads.
    """
    kinds = sorted({(scenario.head_dim, scenario.element_type) for scenario in scenarios})
    shapes = (
        # batch, heads, kv_heads, seqlen_q, seqlen_k, causal
        (1, 2, 1, 1, 1, True),
        (2, 2, 2, 67, 67, True),
        (1, 2, 1, 33, 131, True),
        (1, 2, 2, 131, 33, True),
        (1, 4, 2, 5, 259, False),
    )
    return tuple(
        Scenario(
            batch=batch, heads=heads, kv_heads=kv_heads, seqlen_q=seqlen_q, seqlen_k=seqlen_k,
            head_dim=head_dim, causal=causal, element_type=element_type,
        )
        for head_dim, element_type in kinds
        for batch, heads, kv_heads, seqlen_q, seqlen_k, causal in shapes
    )  # fmt: skip
