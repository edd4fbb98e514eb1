"""What `groups watch` calls a change."""

from holdfast.cli.groups.roles import Role
from holdfast.cli.groups.watch import Snapshot, changes

STABLE = Snapshot("Stable", {"a": "orders(0)", "b": "orders(1)"})


def changes_between(before: Snapshot | None, after: Snapshot) -> list[str]:
    return [change.sentence for change in changes(before, after)]


def test_at_first_everything_is_new() -> None:
    assert changes_between(None, STABLE) == [
        "a joined",
        "a has orders(0)",
        "b joined",
        "b has orders(1)",
        "Stable, 2 members",
    ]


def test_unchanged_members_are_not_reported() -> None:
    assert changes_between(STABLE, Snapshot("Stable", dict(STABLE.members))) == []


def test_members_that_go_and_partitions_that_move() -> None:
    after = Snapshot("Stable", {"a": "orders(0,1)"})
    assert changes_between(STABLE, after) == ["b left", "a has orders(0,1)", "Stable, 1 member"]


def test_a_state_alone() -> None:
    rebalancing = Snapshot("PreparingRebalance", STABLE.members)
    assert changes_between(STABLE, rebalancing) == ["PreparingRebalance, 2 members"]
    assert changes_between(rebalancing, STABLE) == ["Stable, 2 members"]


def test_a_member_that_is_given_nothing() -> None:
    assert changes_between(STABLE, Snapshot("Stable", {"a": "", "b": "orders(1)"})) == ["a has nothing"]


def test_changes_of_expected_and_arrived_members() -> None:
    registered = Snapshot("Stable", STABLE.members, {"c": Role.EXPECTED, "d": Role.EXPECTED})
    assert changes_between(STABLE, registered) == ["c is expected", "d is expected"]
    one_came = Snapshot("Stable", {**STABLE.members, "c": ""}, {"c": Role.ARRIVED, "d": Role.EXPECTED})
    assert changes_between(registered, one_came) == [
        "c joined",
        "c has arrived and waits for the others",
        "Stable, 3 members",
    ]
    assert changes_between(one_came, Snapshot("Stable", one_came.members, dict(one_came.not_active))) == []
    given_up = Snapshot("Stable", {**STABLE.members, "c": "orders(2)"})
    assert changes_between(one_came, given_up) == ["c has orders(2)", "c is active", "d is expected no longer"]


def test_a_standby_that_takes_over_and_one_that_leaves() -> None:
    standbys = Snapshot("Stable", {**STABLE.members, "c": "", "d": ""}, {"c": Role.STANDBY, "d": Role.STANDBY})
    assert changes_between(STABLE, standbys) == [
        "c joined",
        "d joined",
        "c is a standby",
        "d is a standby",
        "Stable, 4 members",
    ]
    swapped = Snapshot("Stable", {"a": "orders(0)", "c": "orders(1)"})
    assert sorted(changes_between(standbys, swapped)) == [
        "Stable, 2 members",
        "b left",
        "c has orders(1)",
        "c is active",
        "d left",
    ]


def test_the_role_is_in_the_json_output() -> None:
    before = Snapshot("Stable", {"a": ""}, {"a": Role.STANDBY, "b": Role.EXPECTED})
    roles = {
        change.details["member"]: change.details["role"] for change in changes(None, before) if change.kind == "role"
    }
    assert roles == {"a": "standby", "b": "expected"}
    after = [(change.kind, dict(change.details)) for change in changes(before, Snapshot("Stable", {"a": ""}))]
    assert after == [("role", {"member": "a", "role": "active"}), ("role", {"member": "b", "role": None})]
