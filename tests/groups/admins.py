"""Groups through each client's own admin, in one vocabulary; a refusal is raised as the client's own error."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import kafka.errors
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.structs import OffsetAndMetadata

from tests.client_compat.client import DEADLINE_S


@dataclass(frozen=True)
class DescribedMember:
    instance_id: str | None
    client_id: str
    host: str
    partitions: frozenset[int]


@dataclass(frozen=True)
class DescribedGroup:
    state: str
    assignor: str
    members: frozenset[DescribedMember]


class GroupAdmin(Protocol):
    name: str

    def states(self, bootstrap: str) -> dict[str, str]:
        """Every group and the state that it is in."""

    def describe(self, bootstrap: str, group: str) -> DescribedGroup: ...

    def offsets(self, bootstrap: str, group: str, topic: str) -> dict[int, int]: ...

    def alter_offsets(self, bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None: ...

    def delete(self, bootstrap: str, group: str) -> None: ...


class ConfluentAdmin:
    name = "confluent-kafka"

    def states(self, bootstrap: str) -> dict[str, str]:
        admin = _confluent(bootstrap)
        listed = admin.list_consumer_groups(request_timeout=DEADLINE_S).result(DEADLINE_S)
        assert not listed.errors, listed.errors
        return {group.group_id: _plain(group.state.name) for group in listed.valid}

    def describe(self, bootstrap: str, group: str) -> DescribedGroup:
        admin = _confluent(bootstrap)
        found = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
        members = frozenset(
            DescribedMember(
                member.group_instance_id,
                member.client_id,
                member.host,
                frozenset(at.partition for at in member.assignment.topic_partitions),
            )
            for member in found.members
        )
        return DescribedGroup(_plain(found.state.name), found.partition_assignor, members)

    def offsets(self, bootstrap: str, group: str, topic: str) -> dict[int, int]:
        admin = _confluent(bootstrap)
        asked = ConsumerGroupTopicPartitions(group)
        found = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S)
        return {at.partition: at.offset for at in found.topic_partitions if at.topic == topic}

    def alter_offsets(self, bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        admin = _confluent(bootstrap)
        asked = ConsumerGroupTopicPartitions(group, wanted)
        done = admin.alter_consumer_group_offsets([asked])[group].result(DEADLINE_S)
        for at in done.topic_partitions:
            if at.error is not None:
                raise KafkaException(at.error)

    def delete(self, bootstrap: str, group: str) -> None:
        admin = _confluent(bootstrap)
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)


class KafkaPythonAdmin:
    name = "kafka-python"

    def states(self, bootstrap: str) -> dict[str, str]:
        with _kafka_python(bootstrap) as admin:
            return {group["group_id"]: _plain(group["group_state"]) for group in admin.list_groups()}

    def describe(self, bootstrap: str, group: str) -> DescribedGroup:
        with _kafka_python(bootstrap) as admin:
            found = admin.describe_groups([group])[group]
        members = frozenset(
            DescribedMember(
                member["group_instance_id"],
                member["client_id"],
                member["client_host"],
                frozenset(
                    partition
                    for topic in member["member_assignment"]["assigned_partitions"]
                    for partition in topic["partitions"]
                ),
            )
            for member in found["members"]
        )
        return DescribedGroup(_plain(found["group_state"]), found["protocol_data"], members)

    def offsets(self, bootstrap: str, group: str, topic: str) -> dict[int, int]:
        with _kafka_python(bootstrap) as admin:
            found = admin.list_group_offsets({group: None})[group]
        return {at.partition: stored.offset for at, stored in found.items() if at.topic == topic}

    def alter_offsets(self, bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = {KafkaPythonPartition(topic, at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()}
        with _kafka_python(bootstrap) as admin:
            _raise_first(admin.alter_group_offsets(group, wanted).values())

    def delete(self, bootstrap: str, group: str) -> None:
        with _kafka_python(bootstrap) as admin:
            result = admin.delete_groups([group])[group]
        if result != "OK":
            raise getattr(kafka.errors, result)(group)

    def delete_offsets(self, bootstrap: str, group: str, topic: str, partitions: Sequence[int]) -> None:
        """confluent-kafka has no call for this."""
        wanted = [KafkaPythonPartition(topic, partition) for partition in partitions]
        with _kafka_python(bootstrap) as admin:
            _raise_first(admin.delete_group_offsets(group, wanted).values())


def _plain(state: str) -> str:
    """`Stable`, `STABLE` and the like are one state."""
    return state.replace("_", "").lower()


def _raise_first(results: Any) -> None:
    for error in results:
        if error is not kafka.errors.NoError:
            raise error()


def _confluent(bootstrap: str) -> AdminClient:
    """To be held until its futures are done: they stay open for ever when it goes before."""
    return AdminClient({"bootstrap.servers": bootstrap})


@contextmanager
def _kafka_python(bootstrap: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield admin
    finally:
        admin.close()
