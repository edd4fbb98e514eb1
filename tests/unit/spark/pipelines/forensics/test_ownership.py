"""Who owned which partition from when to when, and by how many at once."""

from __future__ import annotations

from holdfast.coordinator.events.causes import CauseCode
from tests.unit.spark.pipelines.forensics.histories import Found, History


def intervals(found: Found) -> list[tuple[int, str, int, int | None, str]]:
    return sorted(
        (row["partition"], row["member"], row["from_ms"], row["to_ms"], row["ended_by"]) for row in found.ownership
    )


def test_an_owner_has_a_partition_until_it_is_another_ones() -> None:
    history = History()
    history.stored(1_000, 1, {"a": [0, 1]})
    history.stored(2_000, 2, {"a": [0], "b": [1]})
    history.stored(3_000, 3, {})

    assert intervals(history.followed()) == [
        (0, "a", 1_000, 3_000, "the group became empty"),
        (1, "a", 1_000, 2_000, "moved"),
        (1, "b", 2_000, 3_000, "the group became empty"),
    ]


def test_a_member_that_went_has_nothing_from_then_on() -> None:
    """By the ledger; without it, what the member had is its own until somebody else has it."""
    for ledger in (True, False):
        history = History()
        history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a": [0], "b": [1]}, "a")
        history.gone(5_000, "b", 1, "session expired")
        history.rebalance(5_000, 800, CauseCode.SESSION_EXPIRED, 2, {"a": [0, 1]}, "b")

        found = history.followed(ledger=ledger)

        ended = (5_000, "expired") if ledger else (5_800, "moved")
        assert intervals(found) == [
            (0, "a", 1_000, None, "goes on"),
            (1, "a", 5_800, None, "goes on"),
            (1, "b", 1_000, *ended),
        ]
        assert found.summary["moved"] == 1


def test_a_static_member_that_restarts_stays_the_owner() -> None:
    """The control is a dynamic one, whose id is another."""
    for name, other in (("static-1", "static-1"), ("a:1", "a:2")):
        history = History()
        history.stored(1_000, 1, {name: [0]}, ids={name: "first"})
        history.stored(2_000, 1, {other: [0]}, ids={other: "second"})

        found = history.followed()

        static = name == other
        assert len(found.ownership) == (1 if static else 2)
        assert found.summary["static_rejoins"] == static
        assert found.summary["rebalances"] == 1, "within a generation nobody is rebalanced"


def test_a_partition_of_two_members_in_one_generation_has_two_owners() -> None:
    history = History()
    history.stored(1_000, 1, {"a": [0, 1], "b": [1]})
    history.stored(2_000, 2, {"a": [0], "b": [1]})
    history.stored(3_000, 3, {"a": [0, 1], "b": [1]})

    found = history.followed()

    rows = [(row["partition"], row["member"], row["other"], row["from_ms"], row["to_ms"]) for row in found.two_owners]
    assert rows == [(1, "a", "b", 1_000, 2_000), (1, "a", "b", 3_000, None)]
    assert found.summary["two_owners"] == 2


def test_a_fenced_process_was_present_since_it_was_replaced() -> None:
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"static-1": [0, 1], "a": [2]}, "a")
    history.event(5_000, "static member rejoined", 1, member_id="new", instance_id="static-1")
    history.stored(5_000, 1, {"static-1": [0, 1], "a": [2]}, ids={"static-1": "new"})
    without = history.followed()
    history.event(8_000, "fenced", 1, member_id="old", instance_id="static-1", client_host="/10.0.0.9")

    found = history.followed()

    assert without.two_owners == [], "the control: a restart alone is none"
    rows = [(row["partition"], row["member"], row["from_ms"], row["to_ms"]) for row in found.two_owners]
    assert rows == [(0, "static-1", 5_000, 8_000), (1, "static-1", 5_000, 8_000)]
    assert "as old, on /10.0.0.9" in found.two_owners[0]["other"]


def test_a_group_that_is_deleted_and_created_again_owns_nothing_in_between() -> None:
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a": [0]}, "a")
    history.event(2_000, "group deleted", 1, cause="deleted by request")
    history.forgotten(2_000)
    history.rebalance(9_000, 0, CauseCode.MEMBER_JOINED, 2, {"b": [0]}, "b")

    found = history.followed()

    assert intervals(found) == [
        (0, "a", 1_000, 2_000, "the group was deleted"),
        (0, "b", 9_000, None, "goes on"),
    ]
    assert found.rebalances[-1]["from_empty"]
