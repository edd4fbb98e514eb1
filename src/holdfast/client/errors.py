"""What can go wrong, as the application sees it.

Every exception of the client is a `HoldfastError`. Its message says what was asked, what was found and what to do; its
`code` is Kafka's error code where a broker gave one; `retriable` says that the same call may succeed later, `fatal`
that this consumer, member or admin is finished and a new one is needed. Secrets appear in none of them.
"""

from __future__ import annotations

from typing import ClassVar, Final

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
"""Those which Kafka's own clients take for passing."""


def error_code(number: int) -> ErrorCode:
    """The code by its number; one that only a newer Kafka knows is an unknown server error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class HoldfastError(Exception):
    """The base of them all."""

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
    """A setting that is unknown, missing or has a value that cannot be; the message names it."""

    FATAL = True


class ConnectionFailed(HoldfastError):
    """A broker, or all of them, cannot be reached. The message names each address and what failed there."""

    RETRIABLE = True


class ConnectionLost(ConnectionFailed):
    """A connection that was up has ended: closed by either side, or the broker said what cannot be Kafka's."""


class RequestTimedOut(ConnectionFailed):
    """The broker did not answer in time. The connection has been given up: what follows on it would wait as long."""


class AuthenticationFailed(HoldfastError):
    """The broker does not accept us, or we do not accept the broker: certificates, user, password, mechanism."""

    FATAL = True


class UnsupportedVersion(HoldfastError):
    """The broker and Holdfast have no version of an API in common; the message names both ranges."""

    FATAL = True


class TopicError(HoldfastError):
    """A topic that does not exist, may not be seen, or has no legal name."""


class GroupError(HoldfastError):
    """The coordinator refused something, for a reason that has no class of its own: see `code`."""


class FencedInstanceId(GroupError):
    """Another process has taken the seat of this instance id. This member must never commit again."""

    FATAL = True


class RebalanceInProgress(GroupError):
    """The group is rebalancing: poll, so that this member can take part, and then try again."""

    RETRIABLE = True


class CommitFailed(GroupError):
    """The offsets were not stored and never will be: the partitions have another owner now, or are about to."""


class CallbackError(HoldfastError):
    """A callback of the application raised; the message names it, and what it raised is the cause."""


class AssignorError(HoldfastError):
    """An assignor raised, gave what does not exist, forgot a partition or gave it twice."""
