"""Committed offsets that went back, with who had the partition and what went on."""

from __future__ import annotations

from tests.unit.spark.pipelines.forensics.histories import Found, History


def backs(found: Found) -> list[tuple[int, int, int, str | None, str]]:
    return [
        (row["at_ms"], row["from_offset"], row["to_offset"], row["owner"], row["circumstances"])
        for row in found.went_back
    ]


def test_a_step_back_is_told_with_its_circumstances() -> None:
    history = History()
    history.rebalance(1_000, 100, "a new member joined", 1, {"a": [0]}, "a")
    history.commit(2_000, 0, 50)
    history.commit(2_100, 0, 40)
    history.started(3_000, 1, "a new member joined", "b")
    history.commit(3_010, 0, 30)
    history.stored(3_100, 2, {"a": [], "b": [0]})
    history.event(3_100, "assigned", 2, cause="protocol range")
    history.commit(4_000, 0, 20)
    history.gone(5_000, "a", 2)
    history.gone(5_000, "b", 2)
    history.started(5_000, 2, "2 members left", "a")
    history.stored(5_000, 3, {})
    history.event(5_000, "became empty", 3)
    history.commit(9_000, 0, 0)

    found = history.followed()

    assert backs(found) == [
        (2_100, 50, 40, "a", "while it had an owner"),
        (3_010, 40, 30, "a", "during a rebalance"),
        (4_000, 30, 20, "b", "while it had an owner"),
        (9_000, 20, 0, None, "while nobody owned it"),
    ]
    assert [row["owner_since_ms"] for row in found.went_back] == [1_100, 1_100, 3_100, None]
    assert found.summary["went_back"] == 4


def test_commits_that_go_on_are_none() -> None:
    history = History()
    history.rebalance(1_000, 100, "a new member joined", 1, {"a": [0]}, "a")
    for at in range(2_000, 3_000):
        history.commit(at, 0, at)

    assert history.followed().went_back == []
