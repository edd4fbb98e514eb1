"""What a member does about each error, by API: the table of the client's half of the protocol.

UNKNOWN_MEMBER_ID takes the id with it, ILLEGAL_GENERATION leaves it; FENCED_INSTANCE_ID is the end. An answer that
speaks of a generation which the member has left behind meanwhile is no news (`STALE_IS_IGNORED`).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from holdfast.wire.error_codes import ErrorCode as E


class Action(Enum):
    FORGET_MEMBER = "start over, with no generation and no member id"
    FORGET_GENERATION = "start over with the same member id"
    TAKE_ID = "join again with the id that was given"
    REJOIN = "join again with the seat as it is"
    RETRY = "ask the same again after a back-off"
    REDISCOVER = "look for the coordinator, then ask again"
    FENCED = "the end: another process holds the instance id"
    FATAL = "the end: the coordinator will not have this member"
    FAIL = "the request failed, and the caller is told"
    IGNORE = "no news"


_ELSEWHERE: Final[dict[int, Action]] = {
    E.COORDINATOR_NOT_AVAILABLE: Action.REDISCOVER,
    E.NOT_COORDINATOR: Action.REDISCOVER,
}

JOIN: Final[dict[int, Action]] = {
    **_ELSEWHERE,
    E.MEMBER_ID_REQUIRED: Action.TAKE_ID,
    E.UNKNOWN_MEMBER_ID: Action.FORGET_MEMBER,
    E.ILLEGAL_GENERATION: Action.FORGET_GENERATION,
    E.REBALANCE_IN_PROGRESS: Action.RETRY,
    E.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
    E.FENCED_INSTANCE_ID: Action.FENCED,
}
SYNC: Final[dict[int, Action]] = {
    **_ELSEWHERE,
    E.UNKNOWN_MEMBER_ID: Action.FORGET_MEMBER,
    E.ILLEGAL_GENERATION: Action.FORGET_GENERATION,
    E.REBALANCE_IN_PROGRESS: Action.REJOIN,
    # Apache Kafka says 27 while it loads, because Java's client knows no other answer. Holdfast says it plainly to this
    # client: the SyncGroup is sent again, and the generation goes on.
    E.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
    E.FENCED_INSTANCE_ID: Action.FENCED,
}
HEARTBEAT: Final[dict[int, Action]] = {
    **_ELSEWHERE,
    E.UNKNOWN_MEMBER_ID: Action.FORGET_MEMBER,
    E.ILLEGAL_GENERATION: Action.FORGET_GENERATION,
    E.REBALANCE_IN_PROGRESS: Action.REJOIN,
    E.COORDINATOR_LOAD_IN_PROGRESS: Action.IGNORE,
    E.FENCED_INSTANCE_ID: Action.FENCED,
}
COMMIT: Final[dict[int, Action]] = {
    **_ELSEWHERE,
    E.UNKNOWN_MEMBER_ID: Action.FORGET_MEMBER,
    E.ILLEGAL_GENERATION: Action.FORGET_GENERATION,
    E.REBALANCE_IN_PROGRESS: Action.REJOIN,
    E.COORDINATOR_LOAD_IN_PROGRESS: Action.RETRY,
    E.REQUEST_TIMED_OUT: Action.REDISCOVER,
    E.UNKNOWN_TOPIC_OR_PARTITION: Action.RETRY,
    E.FENCED_INSTANCE_ID: Action.FENCED,
}
"""What is not listed is fatal for a join, a sync or a heartbeat, and a failed request for a commit."""

STALE_IS_IGNORED: Final = frozenset({Action.FORGET_MEMBER, Action.FORGET_GENERATION, Action.FENCED})
"""Of heartbeats and commits; joins and syncs are outstanding one at a time, so their answers are never stale."""

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


def described(code: int, fallback: str = "see the broker's log") -> str:
    """An error code as a sentence to somebody who can act."""
    try:
        known = E(code)
    except ValueError:
        return f"error {code}, which this version does not know"
    return f"{known.name}: {ADVICE.get(known, fallback)}"
