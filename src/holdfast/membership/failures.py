"""Why something did not work, as data: whoever drives the machine makes exceptions of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.wire.error_codes import ErrorCode


class FailureKind(Enum):
    FENCED = "another process holds the instance id"
    REFUSED = "the coordinator refuses this member"
    NOT_AUTHENTICATED = "the broker does not accept who we are"
    UNSUPPORTED = "the broker lacks what was asked for"
    ASSIGNOR = "the assignor failed"
    REBALANCED = "the group is rebalancing"
    NO_LONGER_MEMBER = "the seat is gone"
    COMMIT_REFUSED = "the coordinator refuses the commit"
    TIMED_OUT = "no answer in time"


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    message: str
    code: ErrorCode | None = None
    retriable: bool = False
    """Whether the same call may succeed after the next poll."""
