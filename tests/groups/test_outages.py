"""Static members of librdkafka outlive a broker that is away for longer than their sessions."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.groups.topics import make_topic, produce
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

MEMBERS = 6
SESSION_MS = 2_000
RECORDS = 5
RECONNECTING_S = 90

StartStatic = Callable[[str], "StaticMember"]


class StaticMember:
    """A consumer within this process, polled by the test."""

    def __init__(self, bootstrap: str, topic: str, group: str, instance_id: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": instance_id,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self.instance_id = instance_id
        self.fatal: KafkaError | None = None
        self.losses = 0
        self.read: set[tuple[int, int]] = set()
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic], on_lost=self._lost, on_revoke=self._lost)

    def poll(self) -> None:
        message = None if self.fatal is not None else self.consumer.poll(0)
        if message is None:
            return
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() == KafkaError._FATAL:
            self.fatal = error
        elif error is None:
            assert partition is not None and offset is not None
            self.read.add((partition, offset))

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.losses += bool(partitions)


@pytest.fixture
def start_static(disposable_holdfast: HoldfastBroker, topic_name: str, group: str) -> Iterator[StartStatic]:
    started: list[StaticMember] = []

    def start(instance_id: str) -> StaticMember:
        started.append(StaticMember(disposable_holdfast.bootstrap, topic_name, group, instance_id))
        return started[-1]

    yield start
    for member in started:
        member.consumer.close()


def await_all_read(members: list[StaticMember], expected: set[tuple[int, int]]) -> None:
    def look() -> bool:
        for member in members:
            member.poll()
        dead = [f"{member.instance_id}: {member.fatal}" for member in members if member.fatal is not None]
        assert not dead, dead
        return {record for member in members for record in member.read} == expected

    eventually(look, f"{len(expected)} records are read", RECONNECTING_S)


@pytest.mark.timeout(180)
def test_static_members_survive_an_outage_longer_than_their_sessions(
    disposable_holdfast: HoldfastBroker, start_static: StartStatic, topic_name: str
) -> None:
    """librdkafka has forgotten its member ids by then, and commits with its instance id alone. The control, in which a
    second process with the same instance id does end the first, is in `test_static_members`."""
    # given members that have read what there is
    server = disposable_holdfast
    make_topic(server, topic_name, MEMBERS)
    members = [start_static(f"static-{number}") for number in range(MEMBERS)]
    await_all_read(members, produce(server, topic_name, each=RECORDS, partitions=MEMBERS))

    # when the broker is away until each of them has given up its session, and they commit meanwhile
    server.kill()

    def gave_up() -> bool:
        for member in members:
            member.poll()
        return all(member.losses for member in members)

    eventually(gave_up, "the members' own sessions end")
    for member in members:
        read = {partition for partition, _ in member.read}
        offsets = [TopicPartition(topic_name, partition, RECORDS) for partition in read]
        member.consumer.commit(offsets=offsets, asynchronous=True)
    server.start()

    # then all of them come back and read on
    await_all_read(members, produce(server, topic_name, each=RECORDS, first=RECORDS, partitions=MEMBERS))
