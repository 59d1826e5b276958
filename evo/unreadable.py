"""Why a reply yields no child, as a reason that the re-ask can quote."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Notes:
    """What a reply says in words; "" for what it leaves out."""

    hypothesis: str = ""
    change: str = ""
    expectation: str = ""
    claim: str = ""  # limit | done | none


class UnreadableReply(Exception):
    """The reply has no child that can be read without guessing; `reason` says why, in words for whoever wrote it.

    `notes` holds what it says besides, for a reply that declares a limit often brings no code.
    """

    def __init__(self, reason: str, *, notes: Notes | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.notes = notes or Notes()

    def with_notes(self, notes: Notes) -> "UnreadableReply":
        """The same outcome, with what the reply says in words."""
        return type(self)(self.reason, notes=notes)


class NoChange(UnreadableReply):
    """The child would be its parent."""
