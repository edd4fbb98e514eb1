"""A topic and a group of a test's own, the queries that read it, and what the broker knows of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.client_compat.servers import Server
from tests.groups.topics import committed, make_topic
from tests.holdfast_client.consumers import grow_topic
from tests.support.eventually import eventually
from tests.support.spark_engine import Checkpoint, Engine

QUICK: Final = {
    "kafka.session.timeout.ms": "15000",
    "kafka.heartbeat.interval.ms": "150",
    "kafka.metadata.max.age.ms": "400",
    "kafka.metadata.rebalance.min.interval.ms": "0",
    "kafka.reconnect.backoff.max.ms": "300",
}
"""A query that stands still for some seconds is not missed."""
SOON_MISSED: Final = {"kafka.session.timeout.ms": "3000"}
"""For one that is to be killed, and that nobody is to wait for."""


LOADING: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


class SparkHarness:
    def __init__(self, server: Server) -> None:
        self.server = server
        name = uuid.uuid4().hex[:12]
        self.topic = f"t-{name}"
        self.group = f"g-{name}"
        self._engines: list[Engine] = []
        self._producer = self._make_producer()
        self._admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})

    def _make_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.server.bootstrap, "linger.ms": 0, "log_level": 0})

    # -- records -------------------------------------------------------------------------------------------------------

    def make_topic(self, partitions: int = 4, each: int = 0) -> None:
        make_topic(self.server, self.topic, partitions)
        if each:
            self.produce(each, range(partitions))

    def produce(self, each: int, partitions: Any = range(4)) -> None:
        """Some records to each of these partitions."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        for partition in partitions:
            for number in range(each):
                self._producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=delivered)
        assert self._producer.flush(60) == 0
        assert not failures, failures

    def grow(self, partitions: int) -> None:
        grow_topic(self.server, self.topic, partitions)
        # Kafka says so before its metadata does, and a producer gives up a record for a partition that is not there.
        eventually(lambda: self._partitions() == partitions, "the topic has its new partitions")
        self._producer = self._make_producer()  # the old one would not hear of it for a while

    def _partitions(self) -> int:
        return len(self._admin.list_topics(self.topic, timeout=60).topics[self.topic].partitions)

    def delete_topic(self) -> None:
        for done in self._admin.delete_topics([self.topic]).values():
            done.result(30)
        eventually(lambda: self.topic not in self._admin.list_topics(timeout=10).topics, "the topic is gone")

    def delete_records(self, partition: int, before: int) -> None:
        for done in self._admin.delete_records([TopicPartition(self.topic, partition, before)]).values():
            done.result()

    # -- the group -----------------------------------------------------------------------------------------------------

    def committed(self) -> dict[int, int]:
        return committed(self.server, self.group, self.topic)

    def set_committed(self, offsets: Mapping[int, int]) -> None:
        """By an operator, while the group has no members."""
        wanted = [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]

        def changed() -> bool:
            changes = self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group, wanted)])
            errors = [one.error for done in changes.values() for one in done.result().topic_partitions if one.error]
            # A Kafka that has just started is still loading the groups.
            assert all(error.code() in LOADING for error in errors), errors
            return not errors

        eventually(changed, "the offsets of the group")

    def delete_group(self) -> None:
        for done in self._admin.delete_consumer_groups([self.group]).values():
            done.result()

    def await_no_members(self) -> None:
        """Until the group has no members: what a query says at its end may reach a broker later that is busy."""
        eventually(lambda: not self.members(), "the end of the last membership")

    def members(self) -> dict[str, set[int]]:
        """The partitions of each member, by its instance id or else its client id."""
        described = self._admin.describe_consumer_groups([self.group])[self.group].result()
        return {
            member.group_instance_id or member.client_id: {one.partition for one in member.assignment.topic_partitions}
            for member in described.members
        }

    def instance_ids(self) -> set[str | None]:
        described = self._admin.describe_consumer_groups([self.group])[self.group].result()
        return {member.group_instance_id for member in described.members}

    # -- queries -------------------------------------------------------------------------------------------------------

    def options(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        found = {
            "kafka.bootstrap.servers": self.server.bootstrap,
            "kafka.group.id": self.group,
            "subscribe": self.topic,
            **QUICK,
            **(more or {}),
        }
        return {name: value for name, value in found.items() if value}

    def query(
        self,
        more: Mapping[str, str] | None = None,
        checkpoint: Checkpoint | None = None,
        *,
        available_now: bool = False,
    ) -> Engine:
        """A query that begins at the beginning, if nothing else is said. An option without a value is left out."""
        options = self.options({"startingOffsets": "earliest", **(more or {})})
        engine = Engine(options, checkpoint, available_now=available_now)
        self._engines.append(engine)
        return engine

    def close(self) -> None:
        for engine in self._engines:
            engine.close()
