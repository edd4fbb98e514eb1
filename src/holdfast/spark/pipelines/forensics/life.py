"""The life of one group, from its first fact to its last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from holdfast.coordinator.ledger import EventKind
from holdfast.spark.pipelines.forensics import facts
from holdfast.spark.pipelines.forensics.facts import Event, Kind, Stored, Unread
from holdfast.spark.pipelines.forensics.flapping import REJOINED, Flapping
from holdfast.spark.pipelines.forensics.losses import Losses
from holdfast.spark.pipelines.forensics.ownership import Change, Ownership
from holdfast.spark.pipelines.forensics.rebalances import HOW, Rebalance, Rebalances, going_of
from holdfast.spark.pipelines.forensics.returns import Returns
from holdfast.spark.pipelines.forensics.rules import Rules
from holdfast.spark.pipelines.forensics.scale_ups import ScaleUps
from holdfast.spark.pipelines.forensics.thinning import Fact
from holdfast.spark.pipelines.forensics.two_owners import TwoOwners

_KNOWN: Final = frozenset(kind.value for kind in EventKind)
_MOST_CAUSES: Final = 100
MEASURES: Final = {"static membership": "static", "registration": "registration", "standby": "standby"}

Row = dict[str, Any]


class Life:
    """`emit` gets the rows of all tables but the group's name; `unread` counts what this version cannot read."""

    def __init__(self, rules: Rules, emit: Callable[[str, Row], None], unread: Counter[str]) -> None:
        self._rules = rules
        self._to = emit
        self._unread = unread
        self._first_ms: int | None = None
        self._ledger_ms: int | None = None
        self._last_ms = 0
        self._first_generation: int | None = None
        self._count: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()
        self._lower_bound = False
        self._ownership = Ownership(self._emit)
        self._flapping = Flapping(rules, self._emit)
        self._two_owners = TwoOwners(self._ownership, self._emit)
        self._losses = Losses(rules, self._emit)
        self._scale_ups = ScaleUps(rules, self._emit)
        self._returns = Returns(rules, self._emit, self._scale_ups.on_decided)
        self._rebalances = Rebalances(self._rebalanced)

    def on(self, fact: Fact) -> None:
        self._rebalances.settle(fact.at_ms)
        try:
            if fact.kind == Kind.EVENT:
                self._on_event(facts.read_event(fact.at_ms, fact.body))
            elif fact.kind == Kind.GROUP:
                self._on_group(fact)
            elif fact.kind in (Kind.FIRST, Kind.BACK):
                self._on_commit(fact)
        except Unread as unread:
            facts.count_unread(self._unread, str(unread))
            return
        self._count["facts"] += 1
        self._first_ms = fact.at_ms if self._first_ms is None else self._first_ms
        self._last_ms = max(self._last_ms, fact.at_ms)

    def finish(self) -> None:
        self._rebalances.finish()
        self._returns.finish()
        self._scale_ups.finish()
        self._losses.finish()
        self._ownership.finish()
        self._flapping.finish()
        if self._count["facts"]:
            self._to("summary", self._summary())

    # -- what is told --------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if event.kind not in _KNOWN:
            raise Unread(f"__group_ledger: event {event.kind!r}")
        if self._ledger_ms is None:
            self._ledger_ms = event.at_ms
        self._note_generation(event.generation)
        label = event.text("instance_id") or event.text("member_id") or ""
        seat = self._ownership.seats.get(label)
        session_ms = None if seat is None else seat.session_ms
        self._rebalances.on_event(event, session_ms)
        self._two_owners.on_event(event)
        if event.kind in HOW:
            going = going_of(event, session_ms)
            lost = self._ownership.on_gone(going.label, going.at_ms, going.how)
            self._losses.on_gone(going, lost, event.generation)
            self._flapping.on_gone(going.process, going.is_static, going.how, going.at_ms)
        elif event.kind == EventKind.STATIC_REJOINED:
            self._count["static_rejoins"] += self._is_in(event.at_ms)
            self._flapping.on_gone(label, True, REJOINED, event.at_ms)
        elif event.kind == EventKind.BECAME_EMPTY:
            self._losses.on_empty()
        elif event.kind == EventKind.TOOK_OVER:
            self._count["takeovers"] += self._is_in(event.at_ms)
        elif event.kind == EventKind.DELETED:
            self._losses.on_empty()
            self._ownership.on_deleted(event.at_ms)

    # -- what is stored ------------------------------------------------------------------------------------------------

    def _on_group(self, fact: Fact) -> None:
        if fact.body is None:
            self._losses.on_empty()
            self._ownership.on_deleted(fact.at_ms)
            return
        stored = facts.read_stored(fact.at_ms, fact.body)
        self._note_generation(stored.generation)
        if not stored.is_read:
            self._count["unread_assignments"] += 1
        change = self._ownership.on_stored(stored)
        self._rebalances.on_change(change)
        if stored.generation == change.generation_before and self._is_in(fact.at_ms):
            self._count["moved"] += change.moved  # a standby took over: no rebalance has it in its row
        if not self._rebalances.is_told:
            self._by_difference(change, stored)
        if not stored.seats:
            self._losses.on_empty()
        owned = {where for seat in stored.seats for where in seat.partitions}
        self._losses.on_assigned(owned, fact.at_ms, stored.generation)

    def _by_difference(self, change: Change, stored: Stored) -> None:
        """Who came and went, where nobody tells."""
        for seat in change.went:
            self._flapping.on_gone(seat.process, seat.instance_id is not None, "gone", stored.at_ms)
        for _, seat in change.replaced:
            self._count["static_rejoins"] += self._is_in(stored.at_ms)
            self._flapping.on_gone(seat.process, True, REJOINED, stored.at_ms)

    def _on_commit(self, fact: Fact) -> None:
        assert fact.topic is not None and fact.partition is not None
        where = (fact.topic, fact.partition)
        self._losses.on_commit(where, fact.at_ms)
        if fact.kind != Kind.BACK:
            return
        owners = self._ownership.owners(where)
        since_ms = min(owners.values(), default=None)
        circumstances = "while it had an owner" if owners else "while nobody owned it"
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

    # -- what comes of it ----------------------------------------------------------------------------------------------

    def _rebalanced(self, one: Rebalance) -> None:
        self._returns.on_rebalance(one)
        self._emit("rebalances", one.row())

    def _emit(self, table: str, row: Row) -> None:
        if not self._is_in(_when(table, row)):
            return
        self._count[table] += 1
        if table == "rebalances":
            self._sum_rebalance(row)
        elif table == "savings":
            measure = MEASURES[row["measure"]]
            self._count[f"{measure}_rebalances"] += row["rebalances"]
            self._count[f"{measure}_ms"] += row["stood_still_ms"] or 0
            self._count[f"{measure}_partition_ms"] += row["partition_ms"] or 0
        self._to(table, row)

    def _sum_rebalance(self, row: Row) -> None:
        if row["outcome"] in ("became empty", "the group was deleted"):
            self._count["emptied"] += 1
            return
        self._count["rebalanced"] += 1
        self._count["stood_still_ms"] += row["stood_still_ms"] or 0
        self._count["partition_ms"] += row["partition_ms"] or 0
        self._count["moved"] += row["moved"] or 0
        self._count["formed"] += row["from_empty"]
        self._lower_bound |= row["is_lower_bound"]
        kind = row["kind"]
        self._causes[kind if kind in self._causes or len(self._causes) < _MOST_CAUSES else "others"] += 1

    def _is_in(self, at_ms: int | None) -> bool:
        return at_ms is None or self._rules.since_ms is None or at_ms >= self._rules.since_ms

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
            "unseen_generations": self._rebalances.unseen,
            "facts": count["facts"],
            "rebalances": count["rebalanced"],
            "formed": count["formed"],
            "emptied": count["emptied"],
            "causes": dict(self._causes.most_common()),
            "stood_still_ms": count["stood_still_ms"],
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


def _when(table: str, row: Row) -> int | None:
    """By what a row is in the window or not: when it was over."""
    if table == "rebalances":
        ended: int | None = row["ended_ms"]
        return ended
    if table in ("ownership", "two_owners"):
        over: int | None = row["to_ms"]
        return over
    at: int | None = row["last_ms"] if table == "flapping" else row["at_ms"]
    return at
