"""The exceptions of the client.

Every exception of the client is a `HoldfastError`. Its message says what was asked, what was found and what to do.
`code` is Kafka's error code if a broker returned one. `retriable` means that the same call may succeed later. `fatal`
means that this consumer, member or admin cannot be used any more. No exception contains secrets.
"""

from __future__ import annotations

from typing import ClassVar, Final

from holdfast.membership.failures import Failure, FailureKind
from holdfast.wire.error_codes import ErrorCode

RETRIABLE_CODES: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""The errors that Kafka's own clients retry."""


def error_code(number: int) -> ErrorCode:
    """The code by its number. An unknown number is UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class HoldfastError(Exception):
    """The base class."""

    RETRIABLE: ClassVar[bool] = False
    FATAL: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        retriable: bool | None = None,
        fatal: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.code: Final = code
        self.retriable: Final = (self.RETRIABLE or code in RETRIABLE_CODES) if retriable is None else retriable
        self.fatal: Final = self.FATAL if fatal is None else fatal


class ConfigError(HoldfastError):
    """A setting is unknown, missing or invalid; the message names it."""

    FATAL = True


class ConnectionFailed(HoldfastError):
    """A broker, or all of them, cannot be reached. The message names each address and its error."""

    RETRIABLE = True


class ConnectionLost(ConnectionFailed):
    """An established connection has ended: either side closed it, or the broker sent invalid data."""


class RequestTimedOut(ConnectionFailed):
    """The broker did not answer in time. The connection is closed, because the next response on it would be late,
    too."""


class AuthenticationFailed(HoldfastError):
    """The broker rejected the client, or the client rejected the broker: certificates, user, password, mechanism."""

    FATAL = True


class UnsupportedVersion(HoldfastError):
    """The broker and Holdfast have no version of an API in common; the message names both ranges."""

    FATAL = True


class TopicError(HoldfastError):
    """A topic does not exist, is not authorized, or has an invalid name."""


class GroupError(HoldfastError):
    """The coordinator returned an error that has no exception class of its own; see `code`."""


class FencedInstanceId(GroupError):
    """Another process has joined with this instance id. This member must never commit again."""

    FATAL = True


class RebalanceInProgress(GroupError):
    """The group is rebalancing. Call poll, so that this member can take part, and then try again."""

    RETRIABLE = True


class CommitFailed(GroupError):
    """The offsets were not and will not be stored: the partitions have, or will soon have, another owner."""


class CallbackError(HoldfastError):
    """A callback of the application raised an exception, which is the cause of this one; the message names the
    callback."""


class AssignorError(HoldfastError):
    """An assignor raised an exception, assigned a partition that does not exist, omitted one, or assigned one twice."""


_CLASS_BY_KIND: Final[dict[FailureKind, type[HoldfastError]]] = {
    FailureKind.FENCED: FencedInstanceId,
    FailureKind.REFUSED: GroupError,
    FailureKind.NOT_AUTHENTICATED: AuthenticationFailed,
    FailureKind.UNSUPPORTED: UnsupportedVersion,
    FailureKind.ASSIGNOR: AssignorError,
    FailureKind.REBALANCING: RebalanceInProgress,
    FailureKind.NO_LONGER_MEMBER: CommitFailed,
    FailureKind.COMMIT_REFUSED: CommitFailed,
    FailureKind.TIMED_OUT: RequestTimedOut,
}


def from_failure(failure: Failure, *, fatal: bool | None = None) -> HoldfastError:
    """The exception for a failure of the membership."""
    kind = _CLASS_BY_KIND[failure.kind]
    return kind(failure.message, code=failure.code, retriable=failure.retriable, fatal=fatal)
