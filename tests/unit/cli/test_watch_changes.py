"""What `groups watch` calls a change."""

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
