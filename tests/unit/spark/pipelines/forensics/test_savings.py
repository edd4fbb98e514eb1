"""What static membership, a registration or a standby would have saved, each with a history that it does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds
from tests.unit.spark.pipelines.forensics.histories import SESSION_MS, Found, History

STATIC, REGISTRATION, STANDBY = "static membership", "registration", "standby"


def saved(found: Found) -> dict[str, int]:
    return {measure: found.saved(measure) for measure in (STATIC, REGISTRATION, STANDBY)}


# -- static membership -------------------------------------------------------------------------------------------------


def restarted(away_ms: int, name: str = "a:2", **about: Any) -> History:
    """Given: one of two dynamic members leaves, and after a while somebody comes."""
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a:1": [0], "b:1": [1]}, "a:1")
    history.gone(100_000, "a:1", 1)
    history.rebalance(100_000, 40, CauseCode.MEMBER_LEFT, 2, {"b:1": [0, 1]}, "a:1")
    back = 100_000 + away_ms
    history.rebalance(back, 60, CauseCode.MEMBER_JOINED, 3, {name: [0], "b:1": [1]}, name, **about)
    return history


def test_a_dynamic_member_that_comes_back_within_its_session_costs_two() -> None:
    found = restarted(3_000).followed()

    assert saved(found) == {STATIC: 2, REGISTRATION: 0, STANDBY: 0}
    assert found.summary["static_rebalances"] == 2
    assert found.summary["static_ms"] == 100
    assert found.summary["static_partition_ms"] == 200


@pytest.mark.parametrize(
    ("away_ms", "name"), [(SESSION_MS + 1, "a:2"), (3_000, "c:1")], ids=["longer than its session", "another process"]
)
def test_one_that_is_away_for_longer_or_is_another_does_not(away_ms: int, name: str) -> None:
    assert saved(restarted(away_ms, name).followed())[STATIC] == 0


def test_one_that_is_killed_and_comes_back_before_its_session_ends_costs_two() -> None:
    """The old one expires when the new one is there already."""
    for back in (95_000, 80_000):
        history = History()
        history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a:1": [0], "b:1": [1]}, "a:1")
        history.rebalance(back, 50, CauseCode.MEMBER_JOINED, 2, {"a:1": [0], "b:1": [1], "a:2": []}, "a:2")
        history.gone(100_000, "a:1", 2, "session expired")
        history.rebalance(100_000, 50, CauseCode.SESSION_EXPIRED, 3, {"a:2": [0], "b:1": [1]}, "a:1")

        within = back >= 100_000 - SESSION_MS
        assert saved(history.followed())[STATIC] == (2 if within else 0), back


def test_one_that_left_and_was_back_before_the_others_had_joined_costs_one() -> None:
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a:1": [0], "b:1": [1]}, "a:1")
    history.gone(50_000, "a:1", 1)
    history.rebalance(50_000, 2_000, CauseCode.MEMBER_LEFT, 2, {"a:2": [0], "b:1": [1]}, "a:1")

    assert saved(history.followed())[STATIC] == 1


def test_a_rebalance_that_also_admits_a_new_member_is_not_saved() -> None:
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a:1": [0], "b:1": [1]}, "a:1")
    history.gone(50_000, "a:1", 1)
    history.rebalance(50_000, 2_000, CauseCode.MEMBER_LEFT, 2, {"a:2": [0], "b:1": [1], "c:1": []}, "a:1")

    assert saved(history.followed())[STATIC] == 0


def test_the_second_round_of_a_cooperative_group_is_saved_with_the_first() -> None:
    for protocol, count in (("cooperative-sticky", 4), ("range", 2)):
        history = History()
        history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a:1": [0], "b:1": [1]}, "a:1", protocol=protocol)
        history.gone(50_000, "a:1", 1)
        history.rebalance(50_000, 10, CauseCode.MEMBER_LEFT, 2, {"b:1": [1]}, "a:1", protocol=protocol)
        history.rebalance(50_020, 10, CauseCode.SUBSCRIPTION_CHANGED, 3, {"b:1": [0, 1]}, protocol=protocol)
        back = {"a:2": [], "b:1": [1]}
        history.rebalance(52_000, 10, CauseCode.MEMBER_JOINED, 4, back, "a:2", protocol=protocol)
        back = {"a:2": [0], "b:1": [1]}
        history.rebalance(52_020, 10, CauseCode.SUBSCRIPTION_CHANGED, 5, back, protocol=protocol)

        assert saved(history.followed())[STATIC] == count


def test_a_static_member_that_comes_back_late_is_none_that_static_membership_saves() -> None:
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"static-1": [0], "b:1": [1]}, "b:1")
    history.gone(50_000, "static-1", 1, "session expired")
    history.rebalance(50_000, 10, CauseCode.SESSION_EXPIRED, 2, {"b:1": [0, 1]}, "static-1")
    history.rebalance(50_500, 10, CauseCode.MEMBER_JOINED, 3, {"static-1": [0], "b:1": [1]}, "static-1")

    assert saved(history.followed())[STATIC] == 0


def test_without_a_ledger_the_members_of_the_generations_show_it() -> None:
    for back, count in ((12_000, 2), (10_000 + SESSION_MS + 1, 0)):
        history = History()
        history.stored(1_000, 1, {"a:1": [0], "b:1": [1]})
        history.stored(10_000, 2, {"b:1": [0, 1]})
        history.stored(back, 3, {"a:2": [0], "b:1": [1]})

        assert saved(history.followed())[STATIC] == count


def test_without_the_offsets_the_causes_show_it() -> None:
    assert saved(restarted(3_000).followed(ForensicsThresholds(session_ms=SESSION_MS), offsets=False))[STATIC] == 2
    assert saved(restarted(11_000).followed(ForensicsThresholds(session_ms=SESSION_MS), offsets=False))[STATIC] == 0


# -- registration ------------------------------------------------------------------------------------------------------


def scaled_up(gap_ms: int, count: int = 4) -> History:
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"m:0": [0, 1, 2, 3]}, "m:0")
    assignments: dict[str, list[int]] = {"m:0": [0, 1, 2, 3]}
    for number in range(1, count + 1):
        assignments = {**assignments, f"n{number}:0": []}
        at = 1_000_000 + number * gap_ms
        history.rebalance(at, 100 * number, CauseCode.MEMBER_JOINED, number + 1, assignments, f"n{number}:0")
    return history


def test_members_that_come_one_after_the_other_could_have_been_one_rebalance() -> None:
    found = scaled_up(5_000).followed()

    assert saved(found) == {STATIC: 0, REGISTRATION: 3, STANDBY: 0}
    (row,) = found.savings
    assert row["what"] == "4 members joined in 4 rebalances"
    assert row["unassigned_ms"] == 100 + 200 + 300, "the longest remains"


def test_members_that_come_once_in_a_while_could_not() -> None:
    assert saved(scaled_up(60_001).followed())[REGISTRATION] == 0
    assert saved(scaled_up(60_000).followed())[REGISTRATION] == 3, "the control"
    assert saved(scaled_up(5_000, count=1).followed())[REGISTRATION] == 0


def test_members_that_only_came_back_are_no_scale_up() -> None:
    history = restarted(3_000)
    history.gone(105_000, "b:1", 3)
    history.rebalance(105_000, 10, CauseCode.MEMBER_LEFT, 4, {"a:2": [0, 1]}, "b:1")
    history.rebalance(106_000, 10, CauseCode.MEMBER_JOINED, 5, {"a:2": [0], "b:2": [1]}, "b:2")

    assert saved(history.followed()) == {STATIC: 4, REGISTRATION: 0, STANDBY: 0}


def test_several_that_come_back_one_after_the_other_are_no_scale_up() -> None:
    """The control: under other names they are one."""
    for back, expected in (
        (("a:2", "b:2"), {STATIC: 3, REGISTRATION: 0}),
        (("x:1", "y:1"), {STATIC: 0, REGISTRATION: 1}),
    ):
        history = History()
        history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a:1": [0], "b:1": [1], "c:1": [2]}, "c:1")
        history.gone(100_000, "a:1", 1)
        history.gone(100_000, "b:1", 1)
        history.rebalance(100_000, 10, Cause(CauseCode.MEMBER_LEFT, count=2), 2, {"c:1": [0, 1, 2]}, "a:1")
        assignments = {"c:1": [1, 2], back[0]: [0]}
        history.rebalance(102_000, 10, CauseCode.MEMBER_JOINED, 3, assignments, back[0])
        assignments = {"c:1": [2], back[0]: [0], back[1]: [1]}
        history.rebalance(103_000, 10, CauseCode.MEMBER_JOINED, 4, assignments, back[1])

        assert saved(history.followed()) == {**expected, STANDBY: 0}


# -- standby -----------------------------------------------------------------------------------------------------------


def lost(how: str, stood_ms: int) -> History:
    """Given: one of two members goes, and others have its two partitions after a while."""
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a:1": [0, 1], "b:1": [2, 3]}, "a:1")
    history.commit(2_000, 0, 10)
    history.gone(100_000, "a:1", 1, how)
    history.rebalance(100_000, stood_ms, CauseCode.MEMBER_LEFT, 2, {"b:1": [0, 1, 2, 3]}, "a:1")
    history.commit(100_500 + stood_ms, 0, 11)
    return history


def test_a_standby_would_have_saved_the_time_without_an_owner() -> None:
    rules = ForensicsThresholds(takeover_ms=2_000, heartbeat_ms=500)

    found = lost("session expired", 4_000).followed(rules)

    (row,) = [row for row in found.savings if row["measure"] == STANDBY]
    unowned_ms = SESSION_MS + 4_000
    assert row["partition_ms"] == 2 * (unowned_ms - 2_500)
    assert row["rebalances"] == 1
    assert (
        row["what"] == f"a:1 expired: 2 partitions, unowned {unowned_ms} ms, consumed again after {unowned_ms + 500} ms"
    )


@pytest.mark.parametrize(("together", "rebalances"), [(True, 1), (False, 3)])
def test_members_that_are_lost_together_cost_one_rebalance(together: bool, rebalances: int) -> None:
    # given three of four members, on a host that died or one after the other
    history = History()
    assignments = {"a:1": [0, 1], "b:1": [2], "c:1": [3], "d:1": [4]}
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, assignments, "a:1")
    at, generation = 100_000, 1
    for name in ("a:1", "b:1", "c:1"):
        history.gone(at, name, generation, "session expired")
        orphans = assignments.pop(name)
        assignments["d:1"] = [*assignments["d:1"], *orphans]
        if not together or name == "c:1":
            generation += 1
            history.rebalance(at, 4_000, CauseCode.SESSION_EXPIRED, generation, assignments, name)
            at += 100_000

    # when
    found = history.followed(ForensicsThresholds(takeover_ms=2_000, heartbeat_ms=500))

    # then
    assert found.summary["standby_rebalances"] == rebalances
    assert found.summary["standby_partition_ms"] == 4 * (SESSION_MS + 4_000 - 2_500), "all the same"
    assert len([row for row in found.savings if row["measure"] == STANDBY]) == 3


def test_one_that_left_is_replaced_at_once() -> None:
    rules = ForensicsThresholds(takeover_ms=2_000, heartbeat_ms=500)

    assert lost("member left", 4_000).followed(rules).summary["standby_partition_ms"] == 2 * (4_000 - 500)
    assert lost("member left", 400).followed(rules).summary["standby_partition_ms"] == 0, "no standby is as fast"


def test_where_a_standby_took_over_nothing_is_left_to_save() -> None:
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a:1": [0, 1], "b:1": [2, 3]}, "a:1")
    history.gone(100_000, "a:1", 1, "session expired")
    history.stored(104_000, 1, {"s:1": [0, 1], "b:1": [2, 3]})
    history.event(104_000, "standby took over", 1, member_id="s:1", previous_member_id="a:1")

    found = history.followed()

    assert saved(found)[STANDBY] == 0
    assert (found.summary["takeovers"], found.summary["moved"], found.summary["rebalances"]) == (1, 2, 1)
    assert [row["member"] for row in found.ownership if row["partition"] == 0] == ["a:1", "s:1"]


def test_a_group_that_was_stopped_misses_no_standby() -> None:
    history = History()
    history.rebalance(1_000, 0, CauseCode.MEMBER_JOINED, 1, {"a:1": [0]}, "a:1")
    history.gone(100_000, "a:1", 1)
    history.started(100_000, 1, CauseCode.MEMBER_LEFT, "a:1")
    history.stored(100_000, 2, {})
    history.event(100_000, "became empty", 2)
    history.rebalance(900_000, 10, CauseCode.MEMBER_JOINED, 3, {"b:1": [0]}, "b:1")

    assert saved(history.followed())[STANDBY] == 0
