"""Long histories of many groups, as the broker would have written them, produced to topics of the benchmarks.

In each rebalance of a group, a member leaves and returns with another id: four events and one group record, followed by
a number of commits. The histories end at the current time, because retention would delete older ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from confluent_kafka import Producer

from holdfast.coordinator.events.causes import CauseCode
from holdfast.wire.consumer_protocol import Assignment, TopicPartitions, encode_assignment
from holdfast.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    encode_key,
    encode_value,
    partition_for,
)

OFFSETS_PARTITIONS: Final = 12
PARTITIONS: Final = 12
MEMBERS: Final = 4
COMMITS: Final = 45
EVENTS: Final = 4
PER_REBALANCE: Final = EVENTS + 1 + COMMITS
_STEP_MS: Final = 20_000
_STOOD_MS: Final = 1_200
_COMMIT_EVERY_MS: Final = 300
_COMMIT: Final = Struct(">hqihq")

_LEFT: Final = {"cause": "it left", "cause_code": CauseCode.LEAVE_REQUESTED}
_MEMBER_LEFT: Final = {"cause": "a member left", "cause_code": CauseCode.MEMBER_LEFT, "cause_count": 1}
_PROTOCOL_RANGE: Final = {
    "cause": "protocol range",
    "cause_code": CauseCode.PROTOCOL_SELECTED,
    "cause_detail": "range",
}

Record = tuple[bool, int, bytes, bytes, int]
"""Whether it belongs to the ledger; its partition, key, value and time."""


@dataclass(frozen=True, slots=True)
class History:
    groups: int
    rebalances: int
    """Of each group, after it has formed."""
    begin_ms: int

    @property
    def events(self) -> int:
        return self.groups * self.rebalances * PER_REBALANCE


def history(events: int, groups: int) -> History:
    rebalances = max(1, events // (groups * PER_REBALANCE))
    return History(groups, rebalances, int(time.time() * 1000) - rebalances * _STEP_MS)


def records(of: History) -> Iterator[Record]:
    """In the order of time; the groups take turns."""
    groups = [_Group(f"group-{number:05d}") for number in range(of.groups)]
    for round_number in range(of.rebalances):
        for group in groups:
            yield from group.rebalanced(round_number, of.begin_ms + round_number * _STEP_MS)


class _Group:
    def __init__(self, name: str) -> None:
        self._name = name
        self._place = partition_for(name, OFFSETS_PARTITIONS)
        self._key = encode_key(GroupMetadataKey(name))
        self._commits = [encode_key(OffsetCommitKey(name, "orders", number)) for number in range(PARTITIONS)]
        self._ids = [f"{name}-client-{number}-0" for number in range(MEMBERS)]
        self._offset = 0

    def rebalanced(self, number: int, at_ms: int) -> Iterator[Record]:
        who = number % MEMBERS
        left, self._ids[who] = self._ids[who], f"{self._name}-client-{who}-{number + 1}"
        end_ms = at_ms + _STOOD_MS
        about = {"client_id": f"client-{who}", "client_host": "/10.0.0.1"}
        yield self._event(at_ms, "member left", number + 1, **_LEFT, member_id=left, **about)
        yield self._event(at_ms, "rebalance started", number + 1, **_MEMBER_LEFT, member_id=left, **about)
        yield self._event(end_ms, "generation formed", number + 2, **_PROTOCOL_RANGE, members=MEMBERS)
        yield False, self._place, self._key, encode_value(self._stored(number + 2, end_ms)), end_ms
        yield self._event(
            end_ms,
            "assigned",
            number + 2,
            **_PROTOCOL_RANGE,
            members=MEMBERS,
            unassigned_ms=_STOOD_MS,
            moved_partitions=PARTITIONS // MEMBERS,
        )
        for commit in range(COMMITS):
            self._offset += 1
            time_ms = end_ms + _COMMIT_EVERY_MS * (commit + 1)
            value = _COMMIT.pack(3, self._offset, -1, 0, time_ms)
            yield False, self._place, self._commits[commit % PARTITIONS], value, time_ms

    def _event(self, at_ms: int, kind: str, generation: int, **fields: Any) -> Record:
        body = {"kind": kind, "group_id": self._name, "at_ms": at_ms, "generation": generation, **fields}
        return True, 0, self._name.encode(), json.dumps(body, separators=(",", ":")).encode(), at_ms

    def _stored(self, generation: int, at_ms: int) -> GroupMetadataValue:
        count = PARTITIONS // MEMBERS
        members = [
            MemberMetadata(
                member_id=member_id,
                group_instance_id=None,
                client_id=f"client-{number}",
                client_host="/10.0.0.1",
                rebalance_timeout=300_000,
                session_timeout=45_000,
                subscription=b"",
                assignment=_assignment(number * count, count),
            )
            for number, member_id in enumerate(self._ids)
        ]
        return GroupMetadataValue(
            protocol_type="consumer",
            generation=generation,
            protocol="range",
            leader=self._ids[0],
            current_state_timestamp=at_ms,
            members=members,
        )


def _assignment(first: int, count: int) -> bytes:
    return encode_assignment(Assignment([TopicPartitions("orders", [*range(first, first + count)])]))


def produce(of: History, bootstrap: str, ledger: str, offsets: str) -> int:
    """The number of records written."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    count = 0
    for is_event, partition, key, value, at_ms in records(of):
        topic = ledger if is_event else offsets
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=at_ms)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if not count % 10_000:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the histories could not be produced")
    return count
