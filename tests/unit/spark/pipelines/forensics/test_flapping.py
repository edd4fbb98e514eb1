"""Members that come and go again and again."""

from __future__ import annotations

from holdfast.spark.pipelines.forensics import flapping
from holdfast.spark.pipelines.forensics.flapping import Flapping
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds
from tests.unit.spark.pipelines.forensics.histories import History

MINUTE_MS = 60_000


def leaving(times: int, every_ms: int) -> History:
    """Given: a dynamic member that leaves so often, under another id each time, and another that leaves once."""
    history = History()
    for number in range(times):
        history.gone(number * every_ms, f"a:{number}", number)
    history.gone(times * every_ms, "b:0", times)
    return history


def test_a_member_that_leaves_more_often_than_that_within_the_time_flaps() -> None:
    found = leaving(5, MINUTE_MS).followed()

    (row,) = found.flapping
    assert (row["member"], row["is_static"]) == ("a on /10.0.0.1", False)
    assert (row["left"], row["most_within"]) == (5, 5)
    assert (row["first_ms"], row["last_ms"]) == (0, 4 * MINUTE_MS)
    assert found.summary["flapping"] == 1


def test_a_member_that_leaves_as_often_over_a_longer_time_does_not() -> None:
    assert leaving(5, 4 * MINUTE_MS).followed().flapping == []
    assert leaving(3, MINUTE_MS).followed().flapping == []
    assert len(leaving(3, MINUTE_MS).followed(ForensicsThresholds(flap_times=2)).flapping) == 1, "the control"


def test_a_static_member_that_restarts_again_and_again_flaps_too() -> None:
    history = History()
    for number in range(3):
        history.event(number * 1_000, "static member rejoined", 1, member_id=f"{number}", instance_id="static-1")
    history.gone(9_000, "static-1", 1, "session expired")

    (row,) = history.followed().flapping

    assert (row["member"], row["rejoined"], row["expired"], row["most_within"]) == ("static-1", 3, 1, 4)


def test_without_a_ledger_absence_is_seen() -> None:
    history = History()
    for number in range(8):
        assignments = {"b": [0], f"a:{number}": [1]} if number % 2 else {"b": [0, 1]}
        history.stored(number * 1_000, number + 1, assignments)
    history.stored(9_000, 9, {"b": [0, 1]})

    (row,) = history.followed().flapping

    assert (row["member"], row["gone"]) == ("a on /10.0.0.1", 4)


def test_a_flood_of_names_is_dropped_and_flapping_members_are_kept() -> None:
    rows: list[object] = []
    watched = Flapping(ForensicsThresholds(), lambda _table, row: rows.append(row["member"]))
    for at in range(4):
        watched.on_gone("flaps", False, "left", at)
    for number in range(3 * flapping.MAX_REMEMBERED):
        watched.on_gone(f"once-{number}", False, "left", 1_000_000 + number * 100)
        assert len(watched._members) <= flapping.MAX_REMEMBERED

    watched.finish()

    assert rows == ["flaps"]
