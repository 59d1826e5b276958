"""What "auto" comes to on this machine, and why: said in the first lines of every run."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One decision, as it is shown."""

    what: str
    value: str
    why: str
