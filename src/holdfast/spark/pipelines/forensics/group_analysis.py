"""The analysis of one group, from its first record to its last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from holdfast.coordinator.events.group_event import EventKind
from holdfast.spark.pipelines.forensics import records
from holdfast.spark.pipelines.forensics.commit_filter import HistoryRecord
from holdfast.spark.pipelines.forensics.double_ownership import DoubleOwnership
from holdfast.spark.pipelines.forensics.flapping import REJOINED, Flapping
from holdfast.spark.pipelines.forensics.ownership import GroupChange, Ownership
from holdfast.spark.pipelines.forensics.rebalances import (
    DELETED,
    DEPARTURE_KINDS,
    EMPTY,
    Rebalance,
    Rebalances,
    departure_of,
)
from holdfast.spark.pipelines.forensics.records import LedgerEvent, RecordKind, StoredGroup, UnreadableRecord
from holdfast.spark.pipelines.forensics.registration_savings import RegistrationSavings
from holdfast.spark.pipelines.forensics.standby_savings import StandbySavings
from holdfast.spark.pipelines.forensics.static_membership_savings import StaticMembershipSavings
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds

_KNOWN: Final = frozenset(kind.value for kind in EventKind)
_MAX_CAUSES: Final = 100
MEASURES: Final = {"static membership": "static", "registration": "registration", "standby": "standby"}

Row = dict[str, Any]


class GroupAnalysis:
    """`emit` gets the rows of all tables without the group's name; `unread` counts the records that this version cannot
    read."""

    def __init__(self, rules: ForensicsThresholds, emit: Callable[[str, Row], None], unread: Counter[str]) -> None:
        self._thresholds = rules
        self._write_row = emit
        self._unreadable = unread
        self._first_ms: int | None = None
        self._ledger_ms: int | None = None
        self._last_ms = 0
        self._first_generation: int | None = None
        self._count: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()
        self._lower_bound = False
        self._ownership = Ownership(self._emit)
        self._flapping = Flapping(rules, self._emit)
        self._double_ownership = DoubleOwnership(self._ownership, self._emit)
        self._standby_savings = StandbySavings(rules, self._emit)
        self._registration_savings = RegistrationSavings(rules, self._emit)
        self._static_membership_savings = StaticMembershipSavings(
            rules, self._emit, self._registration_savings.on_decided
        )
        self._rebalances = Rebalances(self._rebalanced)

    def add(self, fact: HistoryRecord) -> None:
        self._rebalances.settle(fact.at_ms)
        try:
            if fact.kind == RecordKind.EVENT:
                self._on_event(records.read_event(fact.at_ms, fact.body))
            elif fact.kind == RecordKind.GROUP:
                self._on_group(fact)
            elif fact.kind in (RecordKind.FIRST_COMMIT, RecordKind.COMMIT_BACK):
                self._on_commit(fact)
        except UnreadableRecord as unread:
            records.count_unreadable(self._unreadable, str(unread))
            return
        self._count["facts"] += 1
        self._first_ms = fact.at_ms if self._first_ms is None else self._first_ms
        self._last_ms = max(self._last_ms, fact.at_ms)

    def finish(self) -> None:
        self._rebalances.finish()
        self._static_membership_savings.finish()
        self._registration_savings.finish()
        self._standby_savings.finish()
        self._ownership.finish()
        self._flapping.finish()
        if self._count["facts"]:
            self._write_row("summary", self._summary())

    # -- from the ledger -----------------------------------------------------------------------------------------------

    def _on_event(self, event: LedgerEvent) -> None:
        if event.kind not in _KNOWN:
            raise UnreadableRecord(f"__group_ledger: event {event.kind!r}")
        if self._ledger_ms is None:
            self._ledger_ms = event.at_ms
        self._note_generation(event.generation)
        label = event.text("instance_id") or event.text("member_id") or ""
        member = self._ownership.members.get(label)
        session_ms = None if member is None else member.session_ms
        self._rebalances.on_event(event, session_ms)
        self._double_ownership.on_event(event)
        if event.kind in DEPARTURE_KINDS:
            departure = departure_of(event, session_ms)
            lost = self._ownership.on_gone(departure.label, departure.at_ms, departure.how)
            self._standby_savings.on_gone(departure, lost, event.generation)
            self._flapping.on_gone(departure.process, departure.is_static, departure.how, departure.at_ms)
        elif event.kind == EventKind.STATIC_REJOINED:
            self._count["static_rejoins"] += self._in_window(event.at_ms)
            self._flapping.on_gone(label, True, REJOINED, event.at_ms)
        elif event.kind == EventKind.BECAME_EMPTY:
            self._standby_savings.on_empty()
        elif event.kind == EventKind.TOOK_OVER:
            self._count["takeovers"] += self._in_window(event.at_ms)
        elif event.kind == EventKind.DELETED:
            self._standby_savings.on_empty()
            self._ownership.on_deleted(event.at_ms)

    # -- from __consumer_offsets ---------------------------------------------------------------------------------------

    def _on_group(self, fact: HistoryRecord) -> None:
        if fact.body is None:
            self._standby_savings.on_empty()
            self._ownership.on_deleted(fact.at_ms)
            return
        stored = records.read_stored(fact.at_ms, fact.body)
        self._note_generation(stored.generation)
        if not stored.is_decoded:
            self._count["unread_assignments"] += 1
        change = self._ownership.on_stored(stored)
        self._rebalances.on_change(change)
        if stored.generation == change.generation_before and self._in_window(fact.at_ms):
            self._count["moved"] += change.moved  # a standby took over, which is not part of a rebalance
        if not self._rebalances.in_ledger:
            self._infer_departures(change, stored)
        if not stored.members:
            self._standby_savings.on_empty()
        owned = {where for member in stored.members for where in member.partitions}
        self._standby_savings.on_assigned(owned, fact.at_ms, stored.generation)

    def _infer_departures(self, change: GroupChange, stored: StoredGroup) -> None:
        """Members that left or rejoined, for groups without a ledger."""
        for member in change.departed:
            self._flapping.on_gone(member.process, member.instance_id is not None, "gone", stored.at_ms)
        for _, member in change.replaced:
            self._count["static_rejoins"] += self._in_window(stored.at_ms)
            self._flapping.on_gone(member.process, True, REJOINED, stored.at_ms)

    def _on_commit(self, fact: HistoryRecord) -> None:
        assert fact.topic is not None and fact.partition is not None
        where = (fact.topic, fact.partition)
        self._standby_savings.on_commit(where, fact.at_ms)
        if fact.kind != RecordKind.COMMIT_BACK:
            return
        owners = self._ownership.owners(where)
        since_ms = min(owners.values(), default=None)
        circumstances = "while it had an owner" if owners else "while it had no owner"
        if self._rebalances.is_under_way:
            circumstances = "during a rebalance"
        self._emit(
            "went_back",
            {
                "topic": fact.topic,
                "partition": fact.partition,
                "from_offset": fact.before,
                "to_offset": fact.after,
                "at_ms": fact.at_ms,
                "generation": self._rebalances.generation,
                "owner": ", ".join(sorted(owners)) or None,
                "owner_since_ms": since_ms,
                "circumstances": circumstances,
            },
        )

    # -- results -------------------------------------------------------------------------------------------------------

    def _rebalanced(self, one: Rebalance) -> None:
        self._static_membership_savings.on_rebalance(one)
        self._emit("rebalances", one.row())

    def _emit(self, table: str, row: Row) -> None:
        if not self._in_window(_window_time(table, row)):
            return
        self._count[table] += 1
        if table == "rebalances":
            self._sum_rebalance(row)
        elif table == "savings":
            measure = MEASURES[row["measure"]]
            self._count[f"{measure}_rebalances"] += row["rebalances"]
            self._count[f"{measure}_ms"] += row["unassigned_ms"] or 0
            self._count[f"{measure}_partition_ms"] += row["partition_ms"] or 0
        self._write_row(table, row)

    def _sum_rebalance(self, row: Row) -> None:
        if row["outcome"] in (EMPTY, DELETED):
            self._count["emptied"] += 1
            return
        self._count["rebalanced"] += 1
        self._count["unassigned_ms"] += row["unassigned_ms"] or 0
        self._count["partition_ms"] += row["partition_ms"] or 0
        self._count["moved"] += row["moved"] or 0
        self._count["formed"] += row["from_empty"]
        self._lower_bound |= row["is_lower_bound"]
        code = row["cause_code"]
        self._causes[code if code in self._causes or len(self._causes) < _MAX_CAUSES else "others"] += 1

    def _in_window(self, at_ms: int | None) -> bool:
        return at_ms is None or self._thresholds.since_ms is None or at_ms >= self._thresholds.since_ms

    def _note_generation(self, generation: int) -> None:
        if self._first_generation is None:
            self._first_generation = generation

    def _summary(self) -> Row:
        count = self._count
        return {
            "history_begins_ms": self._first_ms,
            "history_ends_ms": self._last_ms,
            "ledger_begins_ms": self._ledger_ms,
            "first_generation": self._first_generation,
            "last_generation": self._rebalances.generation,
            "unseen_generations": self._rebalances.missing_generations,
            "facts": count["facts"],
            "rebalances": count["rebalanced"],
            "formed": count["formed"],
            "emptied": count["emptied"],
            "causes": dict(self._causes.most_common()),
            "unassigned_ms": count["unassigned_ms"],
            "is_lower_bound": self._lower_bound,
            "partition_ms": count["partition_ms"],
            "moved": count["moved"],
            "static_rejoins": count["static_rejoins"],
            "takeovers": count["takeovers"],
            "flapping": count["flapping"],
            "went_back": count["went_back"],
            "two_owners": count["two_owners"],
            "unread_assignments": count["unread_assignments"],
            **{
                f"{measure}_{what}": count[f"{measure}_{what}"]
                for measure in MEASURES.values()
                for what in ("rebalances", "ms", "partition_ms")
            },
        }


def _window_time(table: str, row: Row) -> int | None:
    """The time that decides whether a row is in the window: its end."""
    if table == "rebalances":
        ended: int | None = row["ended_ms"]
        return ended
    if table in ("ownership", "two_owners"):
        over: int | None = row["to_ms"]
        return over
    at: int | None = row["last_ms"] if table == "flapping" else row["at_ms"]
    return at
