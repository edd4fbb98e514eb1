"""Partitions move while a query is at work: what waits, for how long, and what is read twice."""

from __future__ import annotations

import time

import pytest

from tests.client_compat.servers import Server
from tests.groups.topics import PARTITIONS, committed, make_topic, produce
from tests.spark.conftest import StartPlain, StartQuery
from tests.spark.streaming_queries import StreamQuery, assignments, await_assignments
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

REVOKE_TIMEOUT_S = 2
ALL = set(range(PARTITIONS))
LONGER_S = REVOKE_TIMEOUT_S + 2
NEVER = {"processingTime": "10000 days"}
"""A first trigger at once, and then none. Spark's triggers come at multiples of their interval since 1970: with one of
two minutes, the second may come a moment after the first."""


def in_a_batch(server: Server, start_query: StartQuery, topic: str, revoke_timeout: str) -> StreamQuery:
    """A query at work on a batch of records of every partition, which does not come to its end."""
    make_topic(server, topic)
    produce(server, topic, 10)  # all of them before the query looks: its first batch has some of every partition
    query = start_query(held=True, **{"kafka.group.instance.id": "query", "revokeTimeout": revoke_timeout})
    query.await_that(lambda: {partition for partition, _ in query.records} == ALL, "a batch with all partitions")
    return query


def test_a_partition_is_revoked_when_its_batch_is_done_and_stored(
    server: Server, start_query: StartQuery, start_plain: StartPlain, topic: str, group: str
) -> None:
    # given
    query = in_a_batch(server, start_query, topic, "60s")

    # when a consumer comes and the query is to give it a part
    plain = start_plain(enable_auto_commit=False)
    eventually(lambda: sorted(map(len, assignments(server, group).values())) == [0, 2], "two partitions on their way")

    # then they stay with the batch, for longer than in the test below
    deadline = time.monotonic() + LONGER_S
    while time.monotonic() < deadline:
        assert not plain.gained
        time.sleep(0.1)
    assert len(query.batches) - query.finished == 1

    # when the batch is done, then they go, and nothing is read twice: the query had stored what it did
    query.gate.set()
    await_assignments(server, group, [2, 2])
    produce(server, topic, 1, first=10)
    everything = {(partition, offset) for partition in ALL for offset in range(11)}
    eventually(lambda: set(query.records + plain.records) == everything, "every record is read")
    assert sorted(query.records + plain.records) == sorted(everything)
    assert len(plain.partitions) == 2


def test_a_partition_is_revoked_without_its_batch_after_the_revoke_timeout(
    server: Server, start_query: StartQuery, start_plain: StartPlain, topic: str, group: str
) -> None:
    # given
    query = in_a_batch(server, start_query, topic, f"{REVOKE_TIMEOUT_S}s")
    in_flight = query.records

    # when a consumer comes, then it gets its part although the batch is not done
    plain = start_plain(enable_auto_commit=False)
    await_assignments(server, group, [2, 2])
    eventually(lambda: len(plain.records) == 20, "the records of two partitions")
    assert len(query.batches) - query.finished == 1
    moved = set(plain.partitions)

    # when the batch ends, then what it read of those partitions is not stored, and all the rest is
    query.gate.set()
    produce(server, topic, 5, first=10)
    expected = {partition: 0 if partition in moved else 15 for partition in ALL}
    eventually(lambda: committed(server, group, topic) == expected, f"{expected} are stored")

    # and only what the batch was at work on was read twice
    everything = [(partition, offset) for partition in ALL for offset in range(15)]
    twice = [at for at in in_flight if at[0] in moved]
    eventually(lambda: len(plain.records) >= 30, "the records of the partitions that went")
    assert sorted(query.records + plain.records) == sorted(everything + twice)


def test_rebalances_do_not_wait_for_a_trigger(
    server: Server, start_query: StartQuery, start_plain: StartPlain, topic: str, group: str
) -> None:
    # given a query that has read a batch and is not to look again
    make_topic(server, topic, 6)
    produce(server, topic, 5, partitions=6)
    query = start_query(trigger=NEVER, revokeTimeout=f"{REVOKE_TIMEOUT_S}s", **{"kafka.client.id": "query"})
    query.await_rows(30)

    # when consumers come and go, then every rebalance comes to its end
    first = start_plain(client_id="first")
    await_assignments(server, group, [3, 3])
    second = start_plain("holdfast", client_id="second")
    await_assignments(server, group, [2, 2, 2])
    third = start_plain(client_id="third")
    await_assignments(server, group, [1, 1, 2, 2])
    expected = produce(server, topic, 5, first=5, partitions=6)
    first.stop()
    await_assignments(server, group, [2, 2, 2])
    third.stop()
    await_assignments(server, group, [3, 3])
    query.stop()
    await_assignments(server, group, [6])
    assert len(query.batches) == 1, "and no trigger had come"

    # and nothing is lost
    eventually(
        lambda: {at for one in (query, first, second, third) for at in one.records} == expected, "every record is read"
    )
