"""Histories of a group, written by hand or recorded from a coordinator, and what comes of them.

history = History()
history.rebalance(at=1_000, stood=200, cause=CauseCode.MEMBER_JOINED, generation=1, assignments={"a": [0, 1]})
found = history.followed()
assert found.summary["rebalances"] == 1
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import GroupEvent
from holdfast.coordinator.runtime.effects import Append
from holdfast.spark.pipelines.forensics.commit_filter import CommitFilter, HistoryRecord
from holdfast.spark.pipelines.forensics.group_analysis import GroupAnalysis
from holdfast.spark.pipelines.forensics.records import RecordKind
from holdfast.spark.pipelines.forensics.tables import TABLES
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds
from holdfast.wire.consumer_protocol import Assignment, TopicPartitions, encode_assignment
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from tests.unit.coordinator.harness import CoordinatorHarness

GROUP = "orders-group"
TOPIC = "orders"
SESSION_MS = 10_000
PROTOCOL_RANGE = {"cause": "protocol range", "cause_code": CauseCode.PROTOCOL_SELECTED, "cause_detail": "range"}


def assignment(partitions: Iterable[int], topic: str = TOPIC) -> bytes:
    return encode_assignment(Assignment([TopicPartitions(topic, sorted(partitions))]))


class Found:
    """The rows of all tables."""

    def __init__(self, tables: Mapping[str, list[dict[str, Any]]], unread: Mapping[str, int]) -> None:
        self.tables = tables
        self.unread = dict(unread)

    def __getattr__(self, table: str) -> list[dict[str, Any]]:
        return self.tables[table]

    @property
    def summary(self) -> dict[str, Any]:
        (row,) = self.tables["summary"]
        return row

    def saved(self, measure: str) -> int:
        return sum(row["rebalances"] for row in self.tables["savings"] if row["measure"] == measure)


def followed(facts: Iterable[HistoryRecord], rules: ForensicsThresholds | None = None) -> Found:
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    unread: Counter[str] = Counter()

    def emit(table: str, row: dict[str, Any]) -> None:
        assert {"group_id", *row} == set(TABLES[table].names), table
        tables[table].append(row)

    analysis = GroupAnalysis(rules or ForensicsThresholds(), emit, unread)
    for fact in sorted(facts, key=lambda one: (one.at_ms, one.kind > RecordKind.EVENT, one.offset)):
        analysis.add(fact)
    analysis.finish()
    return Found(tables, unread)


class History:
    """Of one group, in both topics."""

    def __init__(self, group: str = GROUP) -> None:
        self.group = group
        self.events: list[HistoryRecord] = []
        self.records: list[tuple[bytes | None, bytes | None, int, int]] = []

    def followed(self, rules: ForensicsThresholds | None = None, *, ledger: bool = True, offsets: bool = True) -> Found:
        facts = [*self.events] if ledger else []
        if offsets:
            thinning = CommitFilter()
            facts += [*thinning.records(self.records)]
        return followed(facts, rules)

    # -- the ledger ----------------------------------------------------------------------------------------------------

    def event(self, at: int, kind: str, generation: int, **reported: Any) -> None:
        body = {"kind": kind, "group_id": self.group, "generation": generation, **reported}
        self.raw_event(at, json.dumps({name: value for name, value in body.items() if value is not None}).encode())

    def raw_event(self, at: int, body: bytes | None) -> None:
        self.events.append(HistoryRecord(self.group, at, len(self.events), RecordKind.EVENT, body))

    def gone(self, at: int, member: str, generation: int, how: str = "member left", **about: Any) -> None:
        self.event(at, how, generation, **{**_about(member), **about})

    def started(
        self, at: int, generation: int, cause: Cause | CauseCode | str, member: str | None = None, **about: Any
    ) -> None:
        """A plain text as the cause is a sentence without a code."""
        self.event(at, "rebalance started", generation, **_why(cause), **{**_about(member), **about})

    def rebalance(
        self,
        at: int,
        stood: int,
        cause: Cause | CauseCode | str,
        generation: int,
        assignments: Mapping[str, Sequence[int]],
        member: str | None = None,
        moved: int | None = None,
        **stored: Any,
    ) -> None:
        """From its start to its end; `generation` is the one that comes of it."""
        self.started(at, generation - 1, cause, member)
        self.event(at + stood, "generation formed", generation, **PROTOCOL_RANGE, members=len(assignments))
        self.stored(at + stood, generation, assignments, **stored)
        self.event(
            at + stood,
            "assigned",
            generation,
            **PROTOCOL_RANGE,
            members=len(assignments),
            unassigned_ms=stood,
            moved_partitions=moved,
        )

    # -- the offsets ---------------------------------------------------------------------------------------------------

    def record(self, at: int, key: bytes | None, value: bytes | None) -> None:
        self.records.append((key, value, at, len(self.records)))

    def stored(
        self,
        at: int,
        generation: int,
        assignments: Mapping[str, Sequence[int]],
        *,
        protocol: str = "range",
        ids: Mapping[str, str] | None = None,
        client: str = "client",
        state_ms: int = -1,
        protocol_type: str = "consumer",
    ) -> None:
        """Names that begin with "static" are instance ids; `ids` gives their member ids, `client` all client ids."""
        members = []
        for name, partitions in assignments.items():
            static = name.startswith("static")
            members.append(
                MemberMetadata(
                    member_id=(ids or {}).get(name, f"{name}-id" if static else name),
                    group_instance_id=name if static else None,
                    client_id=_client(name, client),
                    client_host="/10.0.0.1",
                    rebalance_timeout=60_000,
                    session_timeout=SESSION_MS,
                    subscription=b"",
                    assignment=assignment(partitions),
                )
            )
        value = GroupMetadataValue(
            protocol_type=protocol_type,
            generation=generation,
            protocol=protocol,
            leader=None,
            current_state_timestamp=state_ms,
            members=members,
        )
        self.record(at, encode_key(GroupMetadataKey(self.group)), encode_value(value))

    def forgotten(self, at: int) -> None:
        self.record(at, encode_key(GroupMetadataKey(self.group)), None)

    def commit(self, at: int, partition: int, offset: int | None, topic: str = TOPIC) -> None:
        value = None if offset is None else encode_value(OffsetCommitValue(offset, -1, "", at))
        self.record(at, encode_key(OffsetCommitKey(self.group, topic, partition)), value)


def _client(name: str, client: str) -> str:
    """Members of one process are named alike up to the colon: `a:1` and `a:2` are two starts of the client `a`."""
    return name.partition(":")[0] if ":" in name else client


def _why(cause: Cause | CauseCode | str) -> dict[str, str]:
    if isinstance(cause, CauseCode):
        cause = Cause(cause)
    return {"cause": cause.sentence, "cause_code": cause.code} if isinstance(cause, Cause) else {"cause": cause}


def _about(member: str | None) -> dict[str, Any]:
    if member is None:
        return {}
    static = member.startswith("static")
    return {
        "member_id": f"{member}-id" if static else member,
        "instance_id": member if static else None,
        "client_id": _client(member, "client"),
        "client_host": "/10.0.0.1",
    }


class RecordedHarness(CoordinatorHarness):
    """A coordinator whose group log and events are kept with their times."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.recorded: list[tuple[str, bytes, bytes | None, int]] = []

    def _append(self, append: Append) -> None:
        fails = bool(self._failures) and self._failures[0] is not ErrorCode.NONE
        if not fails:
            for key, value in append.records:
                stored = None if value is None else encode_value(value)
                self.recorded.append((append.group.id, encode_key(key), stored, self.now))
        super()._append(append)

    def followed(self, group: str = "g", rules: ForensicsThresholds | None = None) -> Found:
        mine = [(key, value, at, place) for place, (of, key, value, at) in enumerate(self.recorded) if of == group]
        facts = [*CommitFilter().records(mine)]
        facts += [_fact(place, event) for place, event in enumerate(self.events) if event.group_id == group]
        return followed(facts, rules)


def _fact(place: int, event: GroupEvent) -> HistoryRecord:
    return HistoryRecord(event.group_id, event.at_ms, place, RecordKind.EVENT, event.to_json())
