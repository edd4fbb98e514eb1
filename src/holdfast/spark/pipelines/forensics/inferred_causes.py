"""Causes of rebalances without an event, inferred from the difference between two stored generations."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from holdfast.coordinator.events import causes

_MAX_LENGTH: Final = 80
"""The maximum length of an unknown code, because any client may write to the topic."""


class InferredCause(StrEnum):
    """Codes beside those of `CauseCode`, for histories without events."""

    UNKNOWN = "unknown"
    MEMBERS_ADDED = "members_added"
    MEMBERS_REMOVED = "members_removed"
    MEMBERS_CHANGED = "members_changed"
    SAME_MEMBERS = "same_members"
    HISTORY_STARTS = "history_starts"
    GROUP_EMPTIED = "group_emptied"

    @property
    def sentence(self) -> str:
        return SENTENCES[self]


SENTENCES: Final[dict[InferredCause, str]] = {
    InferredCause.UNKNOWN: "unknown: the ledger has no event",
    InferredCause.MEMBERS_ADDED: "a member was added",
    InferredCause.MEMBERS_REMOVED: "a member was removed",
    InferredCause.MEMBERS_CHANGED: "members were added and removed",
    InferredCause.SAME_MEMBERS: "the same members",
    InferredCause.HISTORY_STARTS: "history begins here",
    InferredCause.GROUP_EMPTIED: "the last member was removed",
}


def counted_code(code: str | None) -> str:
    """The code of an event, as it is counted."""
    return code[:_MAX_LENGTH] if code else InferredCause.UNKNOWN


def summary(code: str) -> str:
    """A sentence for all rebalances with this code; the code itself if it is unknown."""
    try:
        return InferredCause(code).sentence
    except ValueError:
        return causes.summary(code)
