"""The seam to a tool: a name, what it takes, and text that comes of a draft."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

DRAFT: Final = "draft"
_DRAFT_SCHEMA: Final[Mapping[str, str]] = MappingProxyType(
    {
        "type": "string",
        "description": (
            "the kernel to look at: the whole .cu file, or edit blocks against the kernel as it was given, or the word "
            "parent for that kernel itself"
        ),
    }
)


class Tool(Protocol):
    """Something that can be found out about a draft."""

    @property
    def name(self) -> str:
        """What it is called by."""

    @property
    def description(self) -> str:
        """What it gives, in one sentence for the model."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Its arguments as a JSON Schema, `schema` makes one: the draft, and strings or whole numbers beside it."""

    def call(self, source: str, arguments: Mapping[str, Any]) -> str:
        """What it found out about a draft, which is read already. `arguments` holds the others, as far as given.

        A bad draft is a result. Raises EnvironmentFault for what is not the draft's fault.
        """


def schema(**others: Mapping[str, str]) -> dict[str, Any]:
    """The JSON Schema of the arguments: the draft, which is needed, and `others`, which are not."""
    return {
        "type": "object",
        "properties": {DRAFT: dict(_DRAFT_SCHEMA)} | {name: dict(other) for name, other in others.items()},
        "required": [DRAFT],
        "additionalProperties": False,
    }
