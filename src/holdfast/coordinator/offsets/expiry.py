"""When committed offsets expire."""

from __future__ import annotations

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.state_machine import EMPTY, STABLE
from holdfast.types import TopicPartition
from holdfast.wire.group_records import OffsetCommitValue


def expired_offsets(group: Group, retention_ms: int, now_ms: int) -> list[TopicPartition]:
    """The offsets whose retention is over.

    With members, an offset is kept as long as a member subscribes to its topic. Without, the retention starts when the
    last member left; in a group that never had members, with each commit.
    """
    stored = group.stored
    if group.is_simple:
        return _expired_since_commit(group, retention_ms, now_ms, skip=set())
    if group.state is EMPTY:
        since = stored.state_timestamp_ms
        return [
            key
            for key, value in stored.offsets.items()
            if _is_expired(value, value.commit_timestamp if since < 0 else since, retention_ms, now_ms)
        ]
    if group.state is STABLE and (topics := group.topics()) is not None:
        return _expired_since_commit(group, retention_ms, now_ms, skip=topics)
    return []


def _expired_since_commit(group: Group, retention_ms: int, now_ms: int, *, skip: set[str]) -> list[TopicPartition]:
    return [
        key
        for key, value in group.stored.offsets.items()
        if key[0] not in skip and _is_expired(value, value.commit_timestamp, retention_ms, now_ms)
    ]


def _is_expired(value: OffsetCommitValue, since_ms: int, retention_ms: int, now_ms: int) -> bool:
    if value.expire_timestamp >= 0:
        return now_ms >= value.expire_timestamp
    return now_ms - since_ms >= retention_ms
