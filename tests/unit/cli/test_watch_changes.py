"""What `groups watch` calls a change."""

from holdfast.cli.groups.roles import Role
from holdfast.cli.groups.watch import Snapshot, changes

STABLE = Snapshot("Stable", {"a": "orders(0)", "b": "orders(1)"})


def told(before: Snapshot | None, after: Snapshot) -> list[str]:
    return [change.sentence for change in changes(before, after)]


def test_at_first_everything_is_new() -> None:
    assert told(None, STABLE) == ["a joined", "a has orders(0)", "b joined", "b has orders(1)", "Stable, 2 members"]


def test_nothing_is_told_of_what_stays() -> None:
    assert told(STABLE, Snapshot("Stable", dict(STABLE.members))) == []


def test_members_that_go_and_partitions_that_move() -> None:
    after = Snapshot("Stable", {"a": "orders(0,1)"})
    assert told(STABLE, after) == ["b left", "a has orders(0,1)", "Stable, 1 member"]


def test_a_state_alone() -> None:
    rebalancing = Snapshot("PreparingRebalance", STABLE.members)
    assert told(STABLE, rebalancing) == ["PreparingRebalance, 2 members"]
    assert told(rebalancing, STABLE) == ["Stable, 2 members"]


def test_a_member_that_is_given_nothing() -> None:
    assert told(STABLE, Snapshot("Stable", {"a": "", "b": "orders(1)"})) == ["a has nothing"]


def test_who_waits_for_a_place_and_who_is_waited_for() -> None:
    announced = Snapshot("Stable", STABLE.members, {"c": Role.EXPECTED, "d": Role.EXPECTED})
    assert told(STABLE, announced) == ["c is expected", "d is expected"]
    one_came = Snapshot("Stable", {**STABLE.members, "c": ""}, {"c": Role.ARRIVED, "d": Role.EXPECTED})
    assert told(announced, one_came) == ["c joined", "c has arrived and waits for the others", "Stable, 3 members"]
    assert told(one_came, Snapshot("Stable", one_came.members, dict(one_came.waiting))) == []
    given_up = Snapshot("Stable", {**STABLE.members, "c": "orders(2)"})
    assert told(one_came, given_up) == ["c has orders(2)", "c takes part", "d is expected no longer"]


def test_a_standby_that_takes_over_and_one_that_goes() -> None:
    standbys = Snapshot("Stable", {**STABLE.members, "c": "", "d": ""}, {"c": Role.STANDBY, "d": Role.STANDBY})
    assert told(STABLE, standbys) == ["c joined", "d joined", "c is a standby", "d is a standby", "Stable, 4 members"]
    swapped = Snapshot("Stable", {"a": "orders(0)", "c": "orders(1)"})
    assert sorted(told(standbys, swapped)) == [
        "Stable, 2 members",
        "b left",
        "c has orders(1)",
        "c takes part",
        "d left",
    ]


def test_the_role_is_told_to_programs() -> None:
    before = Snapshot("Stable", {"a": ""}, {"a": Role.STANDBY, "b": Role.EXPECTED})
    roles = {
        change.details["member"]: change.details["role"] for change in changes(None, before) if change.kind == "role"
    }
    assert roles == {"a": "standby", "b": "expected"}
    after = [(change.kind, dict(change.details)) for change in changes(before, Snapshot("Stable", {"a": ""}))]
    assert after == [("role", {"member": "a", "role": "active"}), ("role", {"member": "b", "role": None})]
