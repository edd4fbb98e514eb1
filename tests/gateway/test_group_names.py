"""The names of groups, their adoption and their release, against the coordinator of a real Kafka.

Kafka answers the first JoinGroup of a group after 3 s, which is its default.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.client.addresses import Address
from holdfast.gateway.adoption import Adoption
from holdfast.gateway.brokers import GatewayAddresses, parse_bootstrap
from holdfast.gateway.group_names import INSTANCE_ID, PROTOCOL_TYPE, GroupNames, NameInUse
from holdfast.gateway.kafka.cluster import KafkaCluster
from holdfast.gateway.kafka.errors import KafkaRefused
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.gateway.kafka_groups import KafkaGroups
from holdfast.gateway.release import write_back
from holdfast.wire.group_records import OffsetCommitValue
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), pytest.mark.usefixtures("apache_kafka_distribution")]

DELAY_S = 3.0
RECORDS = 20


class Parts(NamedTuple):
    cluster: KafkaCluster
    names: GroupNames
    adoption: Adoption
    groups: KafkaGroups


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka({"group.initial.rebalance.delay.ms": str(int(DELAY_S * 1000))}) as broker:
        run(broker, lambda parts: parts.names.hold("the-first-group"))  # for which Kafka creates __consumer_offsets
        yield broker


@pytest.fixture
def topic(kafka: ApacheKafka) -> str:
    """With one partition and some records."""
    name = created_topic(kafka, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=0)
    assert producer.flush(30) == 0
    return name


def created_topic(kafka: ApacheKafka, partitions: int) -> str:
    name = f"topic-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4()}"


def run(kafka: ApacheKafka, story: Callable[[Parts], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        gateway = GatewayAddresses(Address("gateway.example", 20_000))
        cluster = KafkaCluster(parse_bootstrap(kafka.bootstrap), KafkaClientSettings(), gateway)
        names = GroupNames(cluster)
        try:
            await cluster.start()
            await story(Parts(cluster, names, Adoption(cluster, names), KafkaGroups(cluster)))
        finally:
            await names.stop()
            await cluster.close()

    asyncio.run(asyncio.wait_for(whole(), 200))


@contextmanager
def consumer(kafka: ApacheKafka, group: str, **settings: str) -> Iterator[Consumer]:
    """A client that goes to Kafka directly."""
    opened = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    try:
        yield opened
    finally:
        opened.close()


def first_answer(direct: Consumer, topic: str, within_s: float = 60) -> bytes | KafkaError:
    direct.subscribe([topic])
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        message = direct.poll(0.1)
        if message is not None:
            found: bytes | KafkaError | None = message.error() or message.value()
            assert found is not None
            return found
    raise AssertionError(f"neither a record nor an error within {within_s} s")


def commit_without_membership(kafka: ApacheKafka, group: str, topic: str) -> None:
    with consumer(kafka, group) as direct:
        direct.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)


def read_and_commit(direct: Consumer, topic: str, count: int) -> None:
    """Reads records from the start. The offset that is committed last is `count`."""
    assert first_answer(direct, topic) == b"0"
    direct.commit(offsets=[TopicPartition(topic, 0, count, metadata="a note", leader_epoch=0)], asynchronous=False)


# -- holding -----------------------------------------------------------------------------------------------------------


def test_a_name_is_held_long_before_kafka_answers_the_join(kafka: ApacheKafka, group: str) -> None:
    async def story(parts: Parts) -> None:
        began = time.monotonic()
        await parts.names.hold(group)
        held_after_s = time.monotonic() - began
        described = await parts.groups.describe(group)
        member = await parts.names.member(group)
        joined_after_s = time.monotonic() - began

        assert described.group_state == "PreparingRebalance"
        assert [one.group_instance_id for one in described.members] == [INSTANCE_ID]
        assert held_after_s < 1 < DELAY_S <= joined_after_s + 0.1
        assert member.generation == 1
        stable = await parts.groups.describe(group)
        assert (stable.group_state, stable.protocol_type) == ("Stable", PROTOCOL_TYPE)

    run(kafka, story)


@pytest.mark.parametrize("is_joined", [False, True], ids=["while the join is parked", "after the join"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_direct_consumer_is_refused(
    kafka: ApacheKafka, topic: str, group: str, protocol: str, is_joined: bool
) -> None:
    async def story(parts: Parts) -> None:
        await parts.names.hold(group)
        if is_joined:
            await parts.names.member(group)
        with consumer(kafka, group, **{"group.protocol": protocol}) as direct:
            answer = await asyncio.to_thread(first_answer, direct, topic)
        assert isinstance(answer, KafkaError)
        if protocol == "classic":
            assert answer.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        else:
            assert "group id does not exist" in answer.str()

    run(kafka, story)


def test_the_same_consumer_reads_if_the_name_is_not_held(kafka: ApacheKafka, topic: str, group: str) -> None:
    with consumer(kafka, group) as direct:
        assert first_answer(direct, topic) == b"0"


def test_a_direct_commit_without_membership_is_refused(kafka: ApacheKafka, topic: str, group: str) -> None:
    async def story(parts: Parts) -> None:
        await asyncio.to_thread(commit_without_membership, kafka, group, topic)
        await parts.names.hold(group)
        with pytest.raises(KafkaException) as raised:
            await asyncio.to_thread(commit_without_membership, kafka, group, topic)
        assert raised.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID

    run(kafka, story)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_in_use_until_they_leave(
    kafka: ApacheKafka, topic: str, group: str, protocol: str
) -> None:
    async def story(parts: Parts) -> None:
        with consumer(kafka, group, **{"group.protocol": protocol, "client.id": "the-direct-one"}) as direct:
            assert await asyncio.to_thread(first_answer, direct, topic) == b"0"
            began = time.monotonic()
            with pytest.raises(NameInUse) as raised:
                await parts.names.hold(group)
            assert time.monotonic() - began < 1
            expected = ("the-direct-one at 127.0.0.1",) if protocol == "classic" else ()
            assert raised.value.members == expected
            # and it is not disturbed
            record = await asyncio.to_thread(direct.poll, 30)
            assert record is not None
            assert record.value() == b"1"
        await parts.names.hold(group)
        assert parts.names.is_held(group)

    run(kafka, story)


def test_a_second_gateway_process_gets_the_member_of_the_first_at_once(kafka: ApacheKafka, group: str) -> None:
    async def first(parts: Parts) -> None:
        await parts.names.member(group)

    async def second(parts: Parts) -> None:
        began = time.monotonic()
        parts.names.hold_all([group])
        await parts.names.member(group)
        assert time.monotonic() - began < DELAY_S
        assert len((await parts.groups.describe(group)).members) == 1

    run(kafka, first)
    run(kafka, second)


def test_a_gateway_whose_name_was_taken_does_not_take_it_back(
    kafka: ApacheKafka, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(parts: Parts) -> None:
        await parts.names.member(group)
        other = GroupNames(parts.cluster)
        await other.member(group)
        parts.names._beat_now(parts.names._names[group])
        while parts.names.is_held(group):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await parts.names.check()
        assert not parts.names.is_held(group)
        assert other.is_held(group)
        await other.stop()

    run(kafka, story)
    assert "another gateway has taken the names of groups" in caplog.text


def test_a_name_is_held_again_after_kafka_has_lost_the_member(kafka: ApacheKafka, group: str) -> None:
    async def story(parts: Parts) -> None:
        first = await parts.names.member(group)
        await parts.groups.leave(group, INSTANCE_ID)
        await parts.names.check()
        assert await parts.names.member(group, instead_of=first) != first

    run(kafka, story)


def test_five_hundred_names_are_held_with_sixteen_connections(kafka: ApacheKafka, group: str) -> None:
    async def story(parts: Parts) -> None:
        groups = [f"{group}-{number}" for number in range(500)]
        most = 0

        async def hold(name: str) -> None:
            nonlocal most
            await parts.names.hold(name)
            most = max(most, parts.names.connection_count)

        began = time.monotonic()
        await asyncio.gather(*map(hold, groups))
        held_s = time.monotonic() - began
        await asyncio.gather(*map(parts.names.member, groups))
        joined_s = time.monotonic() - began
        print(f"500 names held after {held_s:.1f} s, joined after {joined_s:.1f} s, {most} connections")
        assert most <= 16

        # when another process has taken its place, and nobody needs the groups
        await parts.names.stop()
        names = GroupNames(parts.cluster)
        began = time.monotonic()
        names.hold_all(groups)
        while len(names.held()) < len(groups):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        print(f"held again after {time.monotonic() - began:.1f} s, {names.connection_count} connections")
        await names.stop()
        names = GroupNames(parts.cluster)
        names.is_ours = lambda name: name == groups[0] or name not in groups
        began = time.monotonic()
        assert sorted(await names.release_orphans()) == sorted(groups[1:])
        print(f"{len(groups) - 1} names released after {time.monotonic() - began:.1f} s")
        await names.stop()

    run(kafka, story)


# -- conflicts ---------------------------------------------------------------------------------------------------------


def test_direct_members_of_a_group_of_the_gateway_are_a_conflict_until_they_leave(
    kafka: ApacheKafka, topic: str, group: str
) -> None:
    async def story(parts: Parts) -> None:
        conflicts: list[tuple[str, str]] = []
        parts.names.is_ours = lambda name: name == group
        parts.names.on_conflict = lambda *conflict: conflicts.append(conflict)
        with consumer(kafka, group, **{"client.id": "the-direct-one"}) as direct:
            assert await asyncio.to_thread(first_answer, direct, topic) == b"0"
            for _ in range(3):
                await parts.names.check()
            ((name, text),) = conflicts
            assert name == group
            assert "the-direct-one at 127.0.0.1" in text
            parts.names.hold_all([group])
            await asyncio.sleep(0.5)
            assert not parts.names.is_held(group)
        while not parts.names.is_held(group):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await parts.names.check()
        assert len(conflicts) == 1

    run(kafka, story)


# -- adoption and release ----------------------------------------------------------------------------------------------


def test_a_group_goes_to_the_gateway_and_back(kafka: ApacheKafka, topic: str, group: str) -> None:
    async def story(parts: Parts) -> None:
        # given a group that has read some records from Kafka directly
        with consumer(kafka, group) as direct:
            await asyncio.to_thread(read_and_commit, direct, topic, 7)

        # when the gateway adopts it
        began_ms = time.time() * 1000
        offsets = await parts.adoption.adopt(group)
        assert list(offsets) == [(topic, 0)]
        found = offsets[topic, 0]
        # confluent-kafka sends the zero byte at the end of its text.
        assert (found.offset, found.leader_epoch, found.metadata.rstrip("\0")) == (7, 0, "a note")
        assert abs(found.commit_timestamp - began_ms) < 60_000

        # and releases it with another offset
        await write_back(parts.cluster, parts.names, group, {(topic, 0): OffsetCommitValue(12, 0, "released", 1)})
        await parts.names.release(group)

        # then a direct consumer continues there
        with consumer(kafka, group) as direct:
            (committed,) = await asyncio.to_thread(direct.committed, [TopicPartition(topic, 0)], 30)
            assert (committed.offset, committed.metadata) == (12, "released")
            assert await asyncio.to_thread(first_answer, direct, topic) == b"12"

    run(kafka, story)


def test_a_new_group_has_nothing_to_adopt(kafka: ApacheKafka, group: str) -> None:
    async def story(parts: Parts) -> None:
        began = time.monotonic()
        assert await parts.adoption.adopt(group) == {}
        assert time.monotonic() - began < 1

    run(kafka, story)


def test_a_group_with_members_is_not_adopted(kafka: ApacheKafka, topic: str, group: str) -> None:
    async def story(parts: Parts) -> None:
        with consumer(kafka, group) as direct:
            await asyncio.to_thread(read_and_commit, direct, topic, 7)
            with pytest.raises(NameInUse):
                await parts.adoption.adopt(group)
        assert (await parts.adoption.adopt(group))[topic, 0].offset == 7

    run(kafka, story)


def test_offsets_that_the_gateway_does_not_have_are_gone_after_the_release(
    kafka: ApacheKafka, topic: str, group: str
) -> None:
    async def story(parts: Parts) -> None:
        with consumer(kafka, group) as direct:
            await asyncio.to_thread(read_and_commit, direct, topic, 7)
        await parts.adoption.adopt(group)
        await write_back(parts.cluster, parts.names, group, {})
        await parts.names.release(group)
        with consumer(kafka, group) as direct:
            assert await asyncio.to_thread(first_answer, direct, topic) == b"0"

    run(kafka, story)


def test_the_first_offset_of_an_open_transaction_is_adopted(kafka: ApacheKafka, topic: str, group: str) -> None:
    async def story(parts: Parts) -> None:
        settings: dict[str, str] = {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"of-{group}"}
        producer = Producer(settings)
        await asyncio.to_thread(producer.init_transactions, 30)
        producer.begin_transaction()
        with consumer(kafka, group) as direct:
            assert await asyncio.to_thread(first_answer, direct, topic) == b"0"
            position = [TopicPartition(topic, 0, 9)]
            await asyncio.to_thread(
                producer.send_offsets_to_transaction, position, direct.consumer_group_metadata(), 30
            )
        adopting = asyncio.create_task(parts.adoption.adopt(group))
        await asyncio.sleep(1)
        assert not adopting.done()
        await asyncio.to_thread(producer.commit_transaction, 30)
        assert (await adopting)[topic, 0].offset == 9

    run(kafka, story)


def test_an_offset_of_a_topic_that_does_not_exist_is_reported(kafka: ApacheKafka, group: str) -> None:
    async def story(parts: Parts) -> None:
        with pytest.raises(KafkaRefused, match=r"UNKNOWN_TOPIC_OR_PARTITION to the offset of group .* for no-topic-3"):
            await write_back(parts.cluster, parts.names, group, {("no-topic", 3): OffsetCommitValue(1, -1, "", 1)})
        with suppress(KafkaRefused):
            await parts.names.release(group)

    run(kafka, story)


def test_thousands_of_offsets_are_written_back(kafka: ApacheKafka, group: str) -> None:
    name = created_topic(kafka, 200)

    async def story(parts: Parts) -> None:
        note = "x" * 4096  # Kafka's default of offset.metadata.max.bytes
        offsets = {(name, number): OffsetCommitValue(number, -1, note, 1) for number in range(200)}
        await write_back(parts.cluster, parts.names, group, offsets)

    run(kafka, story)
