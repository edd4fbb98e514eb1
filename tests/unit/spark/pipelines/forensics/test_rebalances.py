"""Rebalances by cause, and how long the group stood still: as the ledger tells, and as generations show."""

from __future__ import annotations

import pytest

from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.spark.pipelines.forensics.inferred_causes import InferredCause
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds
from tests.unit.spark.pipelines.forensics.histories import PROTOCOL_RANGE, History


def two_members() -> History:
    """Given: a group that forms, and is joined by a second member."""
    history = History()
    history.rebalance(1_000, 300, CauseCode.MEMBER_JOINED, 1, {"a": [0, 1, 2, 3]}, "a")
    history.rebalance(5_000, 700, CauseCode.MEMBER_JOINED, 2, {"a": [0, 1], "b": [2, 3]}, "b", moved=2)
    return history


def test_the_ledger_says_when_and_why_and_the_assignments_what_moved() -> None:
    found = two_members().followed()

    first, second = found.rebalances
    assert (first["from_empty"], first["unassigned_ms"], first["moved"]) == (True, 300, 0)
    assert (second["from_empty"], second["cause_code"], second["member"]) == (False, CauseCode.MEMBER_JOINED, "b")
    assert second["cause"] == "a new member joined"
    assert (second["started_ms"], second["ended_ms"], second["unassigned_ms"]) == (5_000, 5_700, 700)
    assert (second["partitions"], second["partition_ms"], second["moved"], second["came"]) == (4, 2_800, 2, 1)
    assert found.summary["rebalances"] == 2
    assert found.summary["causes"] == {CauseCode.MEMBER_JOINED: 2}
    assert (found.summary["unassigned_ms"], found.summary["partition_ms"]) == (1_000, 4_000)
    assert not found.summary["is_lower_bound"]


def test_without_the_offsets_the_ledger_still_says_what_moved() -> None:
    found = two_members().followed(offsets=False)

    assert [row["moved"] for row in found.rebalances] == [None, 2]
    assert [row["partition_ms"] for row in found.rebalances] == [None, None]
    assert found.ownership == []


def test_without_a_ledger_generations_show_rebalances_and_members() -> None:
    history = History()
    history.stored(1_000, 1, {"a": [0, 1]}, state_ms=900)
    history.stored(2_000, 2, {"a": [0], "b": [1]}, state_ms=1_750)
    history.stored(3_000, 3, {"a": [0], "c": [1]}, state_ms=3_000)
    history.stored(4_000, 4, {"a": [0, 1]})
    history.stored(5_000, 5, {"a": [1, 0]})
    history.stored(6_000, 6, {})

    found = history.followed()

    assert [row["cause"] for row in found.rebalances] == [
        "a member was added",
        "a member was added",
        "members were added and removed",
        "a member was removed",
        "the same members",
        "the last member was removed",
    ]
    assert [row["unassigned_ms"] for row in found.rebalances] == [100, 250, 0, 0, 0, 0]
    assert [row["moved"] for row in found.rebalances] == [0, 1, 1, 1, 0, 0]
    assert {row["source"] for row in found.rebalances} == {"offsets"}
    assert (found.summary["rebalances"], found.summary["emptied"]) == (5, 1)
    assert found.summary["is_lower_bound"]


def test_a_rebalance_that_begins_again_is_two_and_unassigned_for_both() -> None:
    history = History()
    history.rebalance(1_000, 100, CauseCode.MEMBER_JOINED, 1, {"a": [0]}, "a")
    history.started(2_000, 1, CauseCode.MEMBER_JOINED, "b")
    history.event(2_400, "generation formed", 2)
    history.rebalance(2_500, 500, CauseCode.MEMBER_JOINED, 3, {"a": [0], "b": [1]}, "c")

    found = history.followed()

    assert [(row["outcome"], row["unassigned_ms"]) for row in found.rebalances] == [
        ("assigned", 100),
        ("began again", 500),
        ("assigned", 500),
    ]
    assert found.summary["rebalances"] == 3
    assert found.summary["unassigned_ms"] == 1_100


def test_a_group_that_becomes_empty_is_not_rebalanced() -> None:
    history = two_members()
    history.gone(6_000, "a", 2)
    history.gone(6_000, "b", 2)
    history.started(6_000, 2, Cause(CauseCode.MEMBER_LEFT, count=2), "a")
    history.stored(6_000, 3, {})
    history.event(6_000, "became empty", 3, cause="the last member is gone")
    history.rebalance(9_000, 100, CauseCode.MEMBER_JOINED, 4, {"c": [0]}, "c")

    found = history.followed()

    assert [row["outcome"] for row in found.rebalances] == ["assigned", "assigned", "became empty", "assigned"]
    assert [row["from_empty"] for row in found.rebalances] == [True, False, False, True]
    assert (found.summary["rebalances"], found.summary["emptied"], found.summary["formed"]) == (3, 1, 2)
    assert found.rebalances[2]["cause_code"] == CauseCode.MEMBER_LEFT


def test_what_happens_in_one_millisecond_is_put_together_by_generation() -> None:
    """The next rebalance begins as the assignment is stored; of one millisecond the ledger is read first."""
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a": [0, 1]}, "a")
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 2, {"a": [0], "b": [1]}, "b")
    history.rebalance(2_000, 5, CauseCode.LEADER_REJOINED, 3, {"a": [0], "b": [1]}, "a")

    found = history.followed()

    assert [(row["generation"], row["partitions"], row["moved"]) for row in found.rebalances] == [
        (1, 2, 0),
        (2, 2, 1),
        (3, 2, 0),
    ]


@pytest.mark.parametrize("cooperative", [True, False])
def test_cooperative_members_go_on_with_what_they_keep(cooperative: bool) -> None:
    history = History()
    protocol = "cooperative-sticky" if cooperative else "range"
    history.rebalance(1_000, 100, CauseCode.MEMBER_JOINED, 1, {"a": [0, 1, 2, 3]}, "a", protocol=protocol)
    history.rebalance(2_000, 100, CauseCode.MEMBER_JOINED, 2, {"a": [0, 1, 2], "b": []}, "b", protocol=protocol)
    history.rebalance(3_000, 10, CauseCode.SUBSCRIPTION_CHANGED, 3, {"a": [0, 1, 2], "b": [3]}, protocol=protocol)

    found = history.followed()

    assert [row["partition_ms"] for row in found.rebalances[1:]] == ([100, 10] if cooperative else [300, 40])
    assert [row["moved"] for row in found.rebalances] == [0, 0, 1], "it moves once, when another one has it"


def test_a_truncated_ledger_is_reported_up_to_its_end() -> None:
    history = History()
    history.stored(4_000, 7, {"a": [0]})
    history.event(4_000, "assigned", 7, **PROTOCOL_RANGE, unassigned_ms=250, members=1)
    history.rebalance(5_000, 100, CauseCode.MEMBER_JOINED, 8, {"a": [0], "b": [1]}, "b")
    history.started(9_000, 8, CauseCode.MEMBER_LEFT, "b")

    found = history.followed()

    assert [(row["outcome"], row["cause_code"], row["unassigned_ms"]) for row in found.rebalances] == [
        ("assigned", InferredCause.UNKNOWN, 250),
        ("assigned", CauseCode.MEMBER_JOINED, 100),
        ("under way at the end", CauseCode.MEMBER_LEFT, None),
    ]
    assert [row["cause"] for row in found.rebalances] == [
        "unknown: the ledger has no event",
        "a new member joined",
        "a member left",
    ]
    assert found.rebalances[0]["started_ms"] == 3_750
    assert (found.summary["first_generation"], found.summary["history_begins_ms"]) == (7, 4_000)


def test_generations_without_a_trace_are_counted() -> None:
    history = History()
    history.rebalance(1_000, 10, CauseCode.MEMBER_JOINED, 1, {"a": [0]}, "a")
    history.rebalance(2_000, 10, CauseCode.MEMBER_JOINED, 6, {"a": [0]}, "b")
    assert history.followed().summary["unseen_generations"] == 4
    assert history.followed(ledger=False).summary["unseen_generations"] == 4
    assert two_members().followed().summary["unseen_generations"] == 0, "the control"


def test_what_is_older_than_the_ledger_is_seen_by_its_generations() -> None:
    history = History()
    history.stored(1_000, 1, {"a": [0, 1]})
    history.stored(2_000, 2, {"a": [0], "b": [1]})
    history.rebalance(3_000, 50, CauseCode.MEMBER_JOINED, 3, {"a": [0], "b": [1], "c": []}, "c")

    found = history.followed()

    assert [(row["source"], row["generation"]) for row in found.rebalances] == [
        ("offsets", 1),
        ("offsets", 2),
        ("ledger", 3),
    ]
    assert found.summary["ledger_begins_ms"] == 3_000


def test_what_is_no_event_is_counted_and_named() -> None:
    history = two_members()
    history.raw_event(6_000, b'{"kind":"rebalance started","group_id":"orders-gr')
    history.raw_event(6_001, b"[1, 2]")
    history.raw_event(6_002, None)
    history.event(6_003, "of a later version", 2)
    history.event(6_004, "assigned", 2, cause=["not", "text"])
    history.record(6_005, history.records[0][0], b"\x00\x63\x00")
    history.record(6_006, history.records[0][0], b"\x00\x03\x00")

    found = history.followed()

    assert found.unread == {
        "__group_ledger: no event": 4,
        "__group_ledger: event 'of a later version'": 1,
        "__consumer_offsets: a group, value version 99": 1,
        "__consumer_offsets: a group, damaged": 1,
    }
    assert found.summary["rebalances"] == 2


def test_a_flood_of_kinds_is_counted_without_being_kept() -> None:
    history = two_members()
    for number in range(1_000):
        history.event(6_000 + number, f"kind {number} {'x' * 500}", 2)

    found = history.followed()

    assert sum(found.unread.values()) == 1_000
    assert len(found.unread) <= 51
    assert max(map(len, found.unread)) < 100


def test_assignments_of_another_kind_are_not_guessed_at() -> None:
    history = History()
    history.rebalance(1_000, 10, CauseCode.MEMBER_JOINED, 1, {"a": [0]}, "a", protocol_type="connect")

    found = history.followed()

    assert found.summary["unread_assignments"] == 1
    assert (found.rebalances[0]["partitions"], found.ownership) == (None, [])


def test_rebalances_before_the_start_are_known_but_not_reported() -> None:
    found = two_members().followed(ForensicsThresholds(since_ms=4_000))

    assert [row["generation"] for row in found.rebalances] == [2]
    assert found.rebalances[0]["moved"] == 2, "the owners before are known"
    assert found.summary["rebalances"] == 1
    assert two_members().followed(ForensicsThresholds(since_ms=900)).summary["rebalances"] == 2, "the control"
