"""Each partition with two owners, on both servers: who reads what, what operators see, and whose commit stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from holdfast import Admin
from holdfast.assignors import RedundantAssignor
from tests.client_compat.servers import Server
from tests.groups.topics import committed, ledger, make_topic, produce
from tests.holdfast_client.consumers import Watched, poll_until, watching
from tests.support.holdfast_broker import HoldfastBroker

PARTITIONS, EACH = 6, 5
OWNERS = 2


@pytest.fixture
def reader(server: Server, group: str) -> Callable[..., Watched]:
    """Makes members of the group, each with an assignor of its own."""

    def make(name: str, **settings: Any) -> Watched:
        strategy = [RedundantAssignor(OWNERS)]
        return Watched(server, group, client_id=name, partition_assignment_strategy=strategy, **settings)

    return make


def owned_by_two(*members: Watched) -> Callable[[], bool]:
    """Whether each partition has two owners, and each member as many partitions as the others."""

    def holds() -> bool:
        counted = Counter(partition for one in members for partition in one.partitions)
        sizes = {len(one.partitions) for one in members}
        return counted == dict.fromkeys(range(PARTITIONS), OWNERS) and len(sizes) == 1

    return holds


def owners(*members: Watched) -> dict[int, set[str]]:
    return {
        partition: {one.consumer.memberid() for one in members if partition in one.partitions}
        for partition in range(PARTITIONS)
    }


def test_every_record_is_read_by_exactly_two_members(
    server: Server, topic: str, reader: Callable[..., Watched]
) -> None:
    # given
    make_topic(server, topic, PARTITIONS)
    members = [reader(name, enable_auto_commit=False).subscribe(topic) for name in "abc"]
    with watching(*members):
        poll_until(owned_by_two(*members), "two owners each", *members)
        for one in members:
            one.records.clear()

        # when
        there = produce(server, topic, EACH, partitions=PARTITIONS)

        # then
        wanted = OWNERS * PARTITIONS * EACH
        poll_until(lambda: sum(len(one.records) for one in members) >= wanted, "all records twice", *members)
        assert Counter(record for one in members for record in one.records) == dict.fromkeys(there, OWNERS)
        for one in members:
            assert {partition for partition, _ in one.records} == set(one.partitions)
            assert len(set(one.records)) == len(one.records), "no member reads a record twice"


def test_describe_and_lag_name_both_owners(
    server: Server, topic: str, group: str, reader: Callable[..., Watched]
) -> None:
    make_topic(server, topic, PARTITIONS)
    produce(server, topic, EACH, partitions=PARTITIONS)
    members = [reader(name, enable_auto_commit=False).subscribe(topic) for name in "abc"]
    with watching(*members), Admin({"bootstrap.servers": server.bootstrap}) as admin:
        poll_until(owned_by_two(*members), "two owners each", *members)
        expected = owners(*members)
        at = [TopicPartition(topic, partition, 2) for partition in members[0].partitions]
        members[0].consumer.commit(offsets=at, asynchronous=False)

        described = admin.describe_group(group)
        assert described.protocol == "holdfast-redundant"
        found = {number: {owner.member_id for owner in of} for (_, number), of in described.owners().items()}
        assert found == expected

        lags = admin.lag(group)
        # One line a partition, however many owners it has: its records are behind once.
        assert [one.partition for one in lags] == list(range(PARTITIONS))
        for one in lags:
            assert {owner.member_id for owner in one.owners} == expected[one.partition]
            was_committed = one.partition in members[0].partitions
            assert (one.committed, one.lag) == ((2, EACH - 2) if was_committed else (None, None))


def test_the_next_owner_begins_at_the_last_commit_of_two_owners(
    server: Server, topic: str, group: str, reader: Callable[..., Watched]
) -> None:
    """As `RedundantAssignor` says: its owners are one group, and a group has one offset for a partition."""
    # given two owners of everything
    make_topic(server, topic, PARTITIONS)
    produce(server, topic, EACH, partitions=PARTITIONS)
    ahead, behind = (reader(name, enable_auto_commit=False).subscribe(topic) for name in "ab")
    with watching(ahead, behind):
        poll_until(owned_by_two(ahead, behind), "both have everything", ahead, behind)

        # when the one behind commits last
        ahead.consumer.commit(offsets=[TopicPartition(topic, 0, EACH)], asynchronous=False)
        assert committed(server, group, topic) == {0: EACH}
        behind.consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)

        # then the offset has gone back, without a complaint to anybody
        assert committed(server, group, topic) == {0: 1}
    # and who comes next reads once more what the other was done with
    newcomer = reader("c", enable_auto_commit=False).subscribe(topic)
    with watching(newcomer):
        wanted = {(0, offset) for offset in range(1, EACH)}
        poll_until(lambda: wanted <= set(newcomer.records), "from the last commit on", newcomer)
        assert (0, 0) not in newcomer.records


def test_owners_that_commit_to_groups_of_their_own_do_not_disturb_each_other(
    server: Server, topic: str, group: str, reader: Callable[..., Watched]
) -> None:
    """The way that the documentation of `RedundantAssignor` recommends."""
    make_topic(server, topic, PARTITIONS)
    members = {name: reader(name, enable_auto_commit=False).subscribe(topic) for name in "ab"}
    with watching(*members.values()), Admin({"bootstrap.servers": server.bootstrap}) as admin:
        poll_until(owned_by_two(*members.values()), "both have everything", *members.values())

        for offset, name in enumerate(members, start=1):
            admin.alter_offsets(f"{group}-{name}", {(topic, 0): offset})

        assert committed(server, f"{group}-a", topic) == {0: 1}
        assert committed(server, f"{group}-b", topic) == {0: 2}
        assert committed(server, group, topic) == {}


def test_the_ledger_counts_a_partition_once_however_many_owners_it_has(
    quick_holdfast: HoldfastBroker, topic: str, group: str
) -> None:
    # given two members that have everything, both of them
    server = quick_holdfast
    make_topic(server, topic, PARTITIONS)
    members = [Watched(server, group, partition_assignment_strategy=[RedundantAssignor(OWNERS)]) for _ in range(3)]
    first, second, third = members
    with watching(*members):
        first.subscribe(topic)
        second.subscribe(topic)
        poll_until(owned_by_two(first, second), "both have everything", first, second)
        before = owners(first, second)
        generation = first.consumer.generation()

        # when a third comes and takes a place at some of the partitions
        third.subscribe(topic)
        poll_until(owned_by_two(*members), "two owners each", *members)

        # then those have moved, each once, and no other
        after = owners(*members)
        changed = sum(before[partition] != after[partition] for partition in before)
        assigned = [one for one in ledger(server, group) if one["kind"] == "assigned"]
        assert changed == 4, "of six partitions with two owners each, a third of the places went to the newcomer"
        assert sum(one["moved_partitions"] for one in assigned if one["generation"] > generation) == changed
