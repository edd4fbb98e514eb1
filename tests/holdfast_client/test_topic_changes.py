"""The leader watches the topics: new ones are found, and a burst of them costs one rebalance. On both servers."""

from __future__ import annotations

from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from tests.client_compat.servers import Server
from tests.groups.topics import make_topic
from tests.holdfast_client.consumers import Watched, evenly_assigned, grow_topic, poll_until, watching

TWENTY, AT_ONCE = 20, 5
"""Topic by topic, Apache Kafka on a busy machine may take longer for the burst than the leader waits."""


def create(admin: KafkaAdminClient, names: list[str]) -> None:
    admin.create_topics([NewTopic(name, 1, 1) for name in names])


def test_a_burst_of_twenty_new_topics_costs_one_rebalance(server: Server, topic: str, group: str) -> None:
    make_topic(server, f"{topic}-0", 1)
    one = Watched(server, group, metadata_max_age_ms=100, metadata_rebalance_min_interval_ms=15_000)
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    with watching(one):
        one.subscribe(f"^{topic}-.*")
        poll_until(lambda: len(one.consumer.assignment()) == 1, "the first topic", one)
        before = one.consumer.generation()

        for first in range(1, TWENTY + 1, AT_ONCE):
            create(admin, [f"{topic}-{number}" for number in range(first, first + AT_ONCE)])
            one.poll(0)
        poll_until(lambda: len(one.consumer.assignment()) == TWENTY + 1, "all of them", one)

        assert one.consumer.generation() == before + 1
    admin.close()


def test_control_without_the_interval_each_one_that_is_noticed_costs_one(
    server: Server, topic: str, group: str
) -> None:
    make_topic(server, f"{topic}-0", 1)
    one = Watched(server, group, metadata_max_age_ms=50, metadata_rebalance_min_interval_ms=0)
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    with watching(one):
        one.subscribe(f"^{topic}-.*")
        poll_until(lambda: len(one.consumer.assignment()) == 1, "the first topic", one)
        before = one.consumer.generation()

        for number in range(1, 4):
            create(admin, [f"{topic}-{number}"])
            poll_until(lambda: len(one.consumer.assignment()) == number + 1, "the next topic", one)  # noqa: B023

        assert one.consumer.generation() == before + 3
    admin.close()


def test_only_the_leader_acts_on_new_partitions(server: Server, topic: str, group: str) -> None:
    """A follower sees the change and does nothing; one rebalance is enough for all."""
    make_topic(server, topic)
    quick = {"metadata_max_age_ms": 100, "metadata_rebalance_min_interval_ms": 500}
    first, second = (Watched(server, group, **quick).subscribe(topic) for _ in range(2))
    with watching(first, second):
        poll_until(evenly_assigned(4, first, second), "both have two", first, second)
        before = first.consumer.generation()

        grow_topic(server, topic, 6)
        poll_until(evenly_assigned(6, first, second), "both have three", first, second)

        assert first.consumer.generation() == second.consumer.generation() == before + 1
