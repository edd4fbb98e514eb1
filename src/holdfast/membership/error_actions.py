"""The reaction of a member to each error, by API.

UNKNOWN_MEMBER_ID resets the member id, ILLEGAL_GENERATION keeps it, and FENCED_INSTANCE_ID is fatal. An error about a
generation that the member is no longer in is ignored (`IGNORED_IF_STALE`).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from holdfast.wire.error_codes import ErrorCode as E


class ErrorAction(Enum):
    RESET_MEMBER_ID = "start over, with no generation and no member id"
    RESET_GENERATION = "start over with the same member id"
    USE_ASSIGNED_ID = "join again with the id from the response"
    REJOIN = "join again with the same generation and member id"
    RETRY = "send the same request after a back-off"
    REDISCOVER = "find the coordinator, then send the same request"
    FENCED = "fatal: another process has joined with the instance id"
    FATAL = "fatal: the coordinator rejects this member"
    FAIL = "the request has failed; its caller gets the error"
    IGNORE = "nothing to do"


_COORDINATOR_MOVED: Final[dict[int, ErrorAction]] = {
    E.COORDINATOR_NOT_AVAILABLE: ErrorAction.REDISCOVER,
    E.NOT_COORDINATOR: ErrorAction.REDISCOVER,
}

JOIN: Final[dict[int, ErrorAction]] = {
    **_COORDINATOR_MOVED,
    E.MEMBER_ID_REQUIRED: ErrorAction.USE_ASSIGNED_ID,
    E.UNKNOWN_MEMBER_ID: ErrorAction.RESET_MEMBER_ID,
    E.ILLEGAL_GENERATION: ErrorAction.RESET_GENERATION,
    E.REBALANCE_IN_PROGRESS: ErrorAction.RETRY,
    E.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
    E.FENCED_INSTANCE_ID: ErrorAction.FENCED,
}
SYNC: Final[dict[int, ErrorAction]] = {
    **_COORDINATOR_MOVED,
    E.UNKNOWN_MEMBER_ID: ErrorAction.RESET_MEMBER_ID,
    E.ILLEGAL_GENERATION: ErrorAction.RESET_GENERATION,
    E.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
    # Apache Kafka responds with REBALANCE_IN_PROGRESS while it loads, because Java's client handles no other error.
    # Holdfast uses this code for its own client, which sends the SyncGroup again and keeps the generation.
    E.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
    E.FENCED_INSTANCE_ID: ErrorAction.FENCED,
}
HEARTBEAT: Final[dict[int, ErrorAction]] = {
    **_COORDINATOR_MOVED,
    E.UNKNOWN_MEMBER_ID: ErrorAction.RESET_MEMBER_ID,
    E.ILLEGAL_GENERATION: ErrorAction.RESET_GENERATION,
    E.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
    E.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.IGNORE,
    E.FENCED_INSTANCE_ID: ErrorAction.FENCED,
}
COMMIT: Final[dict[int, ErrorAction]] = {
    **_COORDINATOR_MOVED,
    E.UNKNOWN_MEMBER_ID: ErrorAction.RESET_MEMBER_ID,
    E.ILLEGAL_GENERATION: ErrorAction.RESET_GENERATION,
    E.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
    E.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
    E.REQUEST_TIMED_OUT: ErrorAction.REDISCOVER,
    E.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.RETRY,
    E.FENCED_INSTANCE_ID: ErrorAction.FENCED,
}
"""Other errors are fatal in a join, a sync or a heartbeat; in a commit only the request fails."""

IGNORED_IF_STALE: Final = frozenset({ErrorAction.RESET_MEMBER_ID, ErrorAction.RESET_GENERATION, ErrorAction.FENCED})
"""In heartbeats and commits. Only one join or sync is in flight at a time, so their responses are never stale."""

ADVICE: Final[dict[int, str]] = {
    E.INCONSISTENT_GROUP_PROTOCOL: "its members use another protocol type or have no assignment strategy in common "
    "with this one; use another group.id, or a partition.assignment.strategy that all members list",
    E.INVALID_GROUP_ID: "set group.id to a name that is not empty",
    E.INVALID_SESSION_TIMEOUT: "set session.timeout.ms within the broker's group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
    E.GROUP_AUTHORIZATION_FAILED: "grant READ on the group to this user",
    E.GROUP_MAX_SIZE_REACHED: "remove members that are gone, or raise the broker's group.max.size",
    E.UNSUPPORTED_VERSION: "the broker is too old for what this member needs",
    E.TOPIC_AUTHORIZATION_FAILED: "grant READ on the topic to this user",
    E.OFFSET_METADATA_TOO_LARGE: "shorten the metadata beside the offset (offset.metadata.max.bytes)",
    E.INVALID_COMMIT_OFFSET_SIZE: "commit fewer partitions at a time",
    E.UNKNOWN_TOPIC_OR_PARTITION: "the topic was deleted, or has fewer partitions",
}


def describe_error(code: int, fallback: str = "see the broker's log") -> str:
    """An error code with advice for the user."""
    try:
        known = E(code)
    except ValueError:
        return f"error {code}, which this version does not know"
    return f"{known.name}: {ADVICE.get(known, fallback)}"
