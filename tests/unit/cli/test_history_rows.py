"""What a line of `groups history` says of the members behind an event."""

from __future__ import annotations

from typing import Any

from holdfast.cli.groups.history import COLUMNS, event_row, who
from holdfast.cli.groups.watch import _event_text
from holdfast.client.history import HistoryEvent


def event(kind: str, cause: str = "", **reported: Any) -> HistoryEvent:
    return HistoryEvent(7, 0, "g", kind, 3, cause, reported)


def shown(one: HistoryEvent) -> dict[str, Any]:
    return dict(zip(COLUMNS, event_row(one), strict=True))


def test_registered_members_are_named() -> None:
    one = event("members registered", "until 08:30", epoch=3_000_000, instance_ids=["a", "b"], member_id="ignored")
    assert shown(one)["MEMBER"] == "a,b"
    assert _event_text(one) == "generation 3, epoch 3000000, members registered: until 08:30 (a,b)"


def test_of_many_registered_members_the_first_are_named() -> None:
    ids = [f"node-{number}" for number in range(10)]
    assert who(event("members registered", instance_ids=ids[:8])) == ",".join(ids[:8])
    assert who(event("members registered", instance_ids=ids)) == f"{','.join(ids[:8])} and 2 more"


def test_a_standby_that_took_over_is_named_with_the_lost_member() -> None:
    one = event(
        "standby took over", epoch=3_000_001, member_id="m-2", instance_id="spare", previous_member_id="m-1-gone"
    )
    assert (shown(one)["MEMBER"], shown(one)["EPOCH"]) == ("spare for m-1-gone", 3_000_001)
    assert _event_text(one) == "generation 3, epoch 3000001, standby took over (spare for m-1-gone)"


def test_a_ledger_from_before_the_extensions_is_shown_as_before() -> None:
    one = event("rebalance started", "a new member joined", member_id="m-1", reason="because")
    assert event_row(one)[1:] == ("g", 3, None, one.kind, "a new member joined (because)", "m-1", None, None)
    assert _event_text(one) == "generation 3, rebalance started: a new member joined (m-1)"


def test_foreign_records_in_the_topic_do_not_stop_the_command() -> None:
    one = event("resynced", epoch="soon", instance_ids=[1, "a"], previous_member_id=5, member_id="m-1")
    assert (one.epoch, one.instance_ids, one.previous_member) == (None, ["a"], None)
    assert who(event("resynced", instance_ids="a", member_id="m-1", previous_member_id=5)) == "m-1"
