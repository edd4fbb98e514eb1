"""`copartitioned` by its name in a group of real consumers: partition n of joined topics goes to one member."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from tests.client_compat.servers import Server
from tests.groups.topics import make_topic
from tests.holdfast_client.consumers import Watched, poll_until, watching

PARTITIONS = 6


def assignments(members: list[Watched]) -> dict[tuple[str, int], int]:
    """By topic and partition, which member reads it."""
    return {
        (one.topic, one.partition): number
        for number, member in enumerate(members)
        for one in member.consumer.assignment()
    }


def owners_of_numbers(members: list[Watched]) -> dict[int, set[int]]:
    owners: dict[int, set[int]] = defaultdict(set)
    for (_, partition), number in assignments(members).items():
        owners[partition].add(number)
    return dict(owners)


def have_all(members: list[Watched]) -> Callable[[], bool]:
    """Whether both topics are read, in one generation that all members are in."""

    def holds() -> bool:
        held = sum(len(one.consumer.assignment()) for one in members)
        is_one = len({one.consumer.generation() for one in members}) == 1
        return held == len(assignments(members)) == 2 * PARTITIONS and is_one

    return holds


def group_of_three(server: Server, group: str, orders: str, payments: str, strategy: str) -> list[Watched]:
    """Two members that join orders with payments, and one that reads orders only."""
    members = [
        Watched(server, group, partition_assignment_strategy=strategy, group_instance_id=f"member-{number}")
        for number in range(3)
    ]
    members[0].subscribe(orders)
    members[1].subscribe(orders, payments)
    members[2].subscribe(orders, payments)
    return members


def test_partition_n_of_both_topics_has_one_owner(server: Server, topic: str, group: str) -> None:
    orders, payments = f"{topic}-orders", f"{topic}-payments"
    for name in (orders, payments):
        make_topic(server, name, PARTITIONS)

    members = group_of_three(server, group, orders, payments, "copartitioned")
    with watching(*members):
        poll_until(have_all(members), "all partitions are read", *members)

        owners = owners_of_numbers(members)
        assert {number: len(who) for number, who in owners.items()} == dict.fromkeys(range(PARTITIONS), 1)
        assert [len(one.partitions) for one in members] == [0, PARTITIONS, PARTITIONS]

    # and with range, the control, some partition n has one owner in the one topic and another in the other
    members = group_of_three(server, f"{group}-range", orders, payments, "range")
    with watching(*members):
        poll_until(have_all(members), "all partitions are read", *members)

        assert max(len(who) for who in owners_of_numbers(members).values()) == 2
