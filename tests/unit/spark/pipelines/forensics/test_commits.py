"""Committed offsets that went back, with who had the partition and what went on."""

from __future__ import annotations

from holdfast.coordinator.events.causes import Cause, CauseCode
from tests.unit.spark.pipelines.forensics.histories import PROTOCOL_RANGE, Found, History


def backs(found: Found) -> list[tuple[int, int, int, str | None, str]]:
    return [
        (row["at_ms"], row["from_offset"], row["to_offset"], row["owner"], row["circumstances"])
        for row in found.went_back
    ]


def test_a_step_back_is_reported_with_its_circumstances() -> None:
    history = History()
    history.rebalance(1_000, 100, CauseCode.MEMBER_JOINED, 1, {"a": [0]}, "a")
    history.commit(2_000, 0, 50)
    history.commit(2_100, 0, 40)
    history.started(3_000, 1, CauseCode.MEMBER_JOINED, "b")
    history.commit(3_010, 0, 30)
    history.stored(3_100, 2, {"a": [], "b": [0]})
    history.event(3_100, "assigned", 2, **PROTOCOL_RANGE)
    history.commit(4_000, 0, 20)
    history.gone(5_000, "a", 2)
    history.gone(5_000, "b", 2)
    history.started(5_000, 2, Cause(CauseCode.MEMBER_LEFT, count=2), "a")
    history.stored(5_000, 3, {})
    history.event(5_000, "became empty", 3)
    history.commit(9_000, 0, 0)

    found = history.followed()

    assert backs(found) == [
        (2_100, 50, 40, "a", "while it had an owner"),
        (3_010, 40, 30, "a", "during a rebalance"),
        (4_000, 30, 20, "b", "while it had an owner"),
        (9_000, 20, 0, None, "while it had no owner"),
    ]
    assert [row["owner_since_ms"] for row in found.went_back] == [1_100, 1_100, 3_100, None]
    assert found.summary["went_back"] == 4


def test_commits_that_go_on_are_none() -> None:
    history = History()
    history.rebalance(1_000, 100, CauseCode.MEMBER_JOINED, 1, {"a": [0]}, "a")
    for at in range(2_000, 3_000):
        history.commit(at, 0, at)

    assert history.followed().went_back == []
