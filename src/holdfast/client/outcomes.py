"""The machine's failures as the exceptions that people see."""

from __future__ import annotations

from typing import Final

from holdfast.client.errors import (
    AssignorError,
    AuthenticationFailed,
    CommitFailed,
    FencedInstanceId,
    GroupError,
    HoldfastError,
    RebalanceInProgress,
    RequestTimedOut,
    UnsupportedVersion,
)
from holdfast.membership.failures import Failure, FailureKind

_CLASSES: Final[dict[FailureKind, type[HoldfastError]]] = {
    FailureKind.FENCED: FencedInstanceId,
    FailureKind.REFUSED: GroupError,
    FailureKind.NOT_AUTHENTICATED: AuthenticationFailed,
    FailureKind.UNSUPPORTED: UnsupportedVersion,
    FailureKind.ASSIGNOR: AssignorError,
    FailureKind.REBALANCED: RebalanceInProgress,
    FailureKind.NO_LONGER_MEMBER: CommitFailed,
    FailureKind.COMMIT_REFUSED: CommitFailed,
    FailureKind.TIMED_OUT: RequestTimedOut,
}


def exception(failure: Failure, *, fatal: bool | None = None) -> HoldfastError:
    kind = _CLASSES[failure.kind]
    return kind(failure.message, code=failure.code, retriable=failure.retriable, fatal=fatal)
