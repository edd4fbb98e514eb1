"""What a group survives: a killed gateway, a killed broker, a Kafka that stands still, compaction, a second gateway.

Nothing that was acknowledged is lost or read back smaller, and members that need not rebalance do not.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public by its documentation, not by its stubs
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from holdfast.gateway.state.topic import GROUPS_TOPIC, PARTITIONS
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import partition_for
from tests.broker.wire_client import WireClient
from tests.client_compat.servers import ALL_GATEWAY_TESTS
from tests.gateway.committing_members import (
    committed,
    committing_group,
    created_topic,
    unique,
)
from tests.support.eventually import eventually
from tests.support.gateway_process import GatewayProcess
from tests.support.holdfast_broker import HoldfastFailed
from tests.support.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

SEED = int(os.environ.get("HOLDFAST_SEED", "20"))
KILLS = 30 if ALL_GATEWAY_TESTS else 3
COMPACTED_GROUPS = 20 if ALL_GATEWAY_TESTS else 6
STANDSTILL_S = 70 if ALL_GATEWAY_TESTS else 15
SHORT_SESSION_MS = 6_000


# -- the gateway is killed ---------------------------------------------------------------------------------------------


def test_a_group_survives_kills_of_the_gateway(kafka_cluster: KafkaCluster) -> None:
    moments = random.Random(SEED)
    with GatewayProcess(kafka_cluster) as gateway, committing_group(gateway) as group:
        before = group.undisturbed()
        for _ in range(KILLS):
            group.await_commits(moments.randint(1, 50))
            gateway.kill()
            gateway.start()
            group.await_offsets_checked()
            group.await_commits()

        assert group.undisturbed() == before, f"HOLDFAST_SEED={SEED}"

        # The control: a member that stays away for longer than its session.
        absent = group.start_member(SHORT_SESSION_MS)
        group.await_commits()
        with_three = group.rebalances()
        assert with_three > before[1]
        absent.stop()
        group.members.remove(absent)
        gateway.kill()
        gateway.start()
        eventually(lambda: group.rebalances() > with_three, "the absent member is missed", within_s=120)
        group.await_commits()
        group.await_offsets_checked()


# -- Kafka fails -------------------------------------------------------------------------------------------------------


def test_commits_continue_after_a_kill_of_the_state_partitions_leader(kafka_cluster: KafkaCluster) -> None:
    with GatewayProcess(kafka_cluster) as gateway, committing_group(gateway) as group:
        before = group.undisturbed()
        partition = partition_for(group.group, PARTITIONS)
        leader = kafka_cluster.leader_of(GROUPS_TOPIC, partition)
        kafka_cluster.await_in_sync(GROUPS_TOPIC, partition)

        with killed_broker(kafka_cluster, leader):
            group.await_commits(20)
            assert kafka_cluster.leader_of(GROUPS_TOPIC, partition) != leader
            group.await_offsets_checked()
            assert group.undisturbed() == before

        # The control: the ledger has what a further member causes.
        group.start_member()
        group.await_commits()
        assert group.rebalances() > before[1]


@contextmanager
def killed_broker(cluster: KafkaCluster, node_id: int) -> Iterator[None]:
    cluster.kill(node_id)
    try:
        yield
    finally:
        cluster.start(node_id)
        for partition in range(PARTITIONS):
            cluster.await_in_sync(GROUPS_TOPIC, partition)


def test_heartbeats_are_answered_while_all_brokers_stand_still(kafka_cluster: KafkaCluster) -> None:
    with (
        GatewayProcess(kafka_cluster) as gateway,
        committing_group(gateway, session_ms=SHORT_SESSION_MS) as quiet,
        committing_group(gateway, session_ms=SHORT_SESSION_MS) as waiting,
    ):
        before = quiet.undisturbed()
        generation, rebalances, *_ = waiting.undisturbed()
        for member in quiet.members:
            member.quiesce()

        with suspended(kafka_cluster):
            # Both the coordinator and the clients themselves end the session of a member without heartbeats.
            time.sleep(STANDSTILL_S)
        for member in quiet.members:
            member.resume()
        for group in (quiet, waiting):
            group.await_commits(20)
            group.await_offsets_checked()
        assert quiet.undisturbed() == before
        # A member that waits for a commit has its heartbeats behind it on the same connection, as on Kafka.
        assert (waiting.generation(), waiting.rebalances()) == (generation, rebalances)

        # The control: a gateway that does not answer heartbeats.
        for member in quiet.members:
            member.quiesce()
        gateway.suspend()
        eventually(lambda: all(one.revocations for one in quiet.members), "the members end their sessions")
        gateway.resume()


@contextmanager
def suspended(cluster: KafkaCluster) -> Iterator[None]:
    """All brokers, by SIGSTOP."""
    pids = [cluster.pid(node_id) for node_id in cluster.node_ids]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


# -- the state topic ---------------------------------------------------------------------------------------------------


def test_without_its_state_topic_the_gateway_ends_and_does_not_start(one_kafka: KafkaCluster) -> None:
    with GatewayProcess(one_kafka) as gateway:
        group, topic = unique("g"), created_topic(gateway.bootstrap, unique("t"))
        commit(gateway.bootstrap, group, topic, 5)

        admin = AdminClient({"bootstrap.servers": one_kafka.bootstrap})
        admin.delete_topics([GROUPS_TOPIC])[GROUPS_TOPIC].result(60)

        assert gateway.await_end() == 1
        assert re.fullmatch(rf"holdfast gateway: .*{GROUPS_TOPIC}.* deleted.*", last_line(gateway)), last_line(gateway)

        with pytest.raises(HoldfastFailed, match="exit code 2"):
            gateway.start()
        assert re.fullmatch(rf"holdfast gateway: .*{GROUPS_TOPIC}.*--create-state.*", last_line(gateway))

    with GatewayProcess(one_kafka, options=["--create-state"]) as gateway:
        assert committed(gateway.bootstrap, group, topic, 1) == {0: OFFSET_INVALID}
        commit(gateway.bootstrap, group, topic, 6)
    with GatewayProcess(one_kafka) as gateway:
        assert committed(gateway.bootstrap, group, topic, 1) == {0: 6}


def last_line(gateway: GatewayProcess) -> str:
    return gateway.log_text().splitlines()[-1]


def test_groups_survive_compaction_under_load(kafka_cluster: KafkaCluster) -> None:
    groups = [unique("g") for _ in range(COMPACTED_GROUPS)]
    with GatewayProcess(kafka_cluster) as gateway:
        topic = created_topic(gateway.bootstrap, unique("t"), 2)
        with compacting(kafka_cluster), WireClient(gateway.address_of(1)) as client:
            partitions = {partition_for(group, PARTITIONS) for group in groups}
            ends = {partition: end_offset(kafka_cluster, partition) for partition in partitions}
            commits = 0

            def is_compacted() -> bool:
                nonlocal commits
                for _ in range(20):
                    commits += 1
                    for group in groups:
                        await_commit_at(client, group, topic, commits)
                return all(has_gaps(kafka_cluster, partition, end) for partition, end in ends.items())

            eventually(is_compacted, "the state partitions of these groups are compacted", within_s=180)
            gateway.kill()
            gateway.start()
            for group in groups:
                assert committed(gateway.bootstrap, group, topic, 2) == {0: commits, 1: commits}, group


@contextmanager
def compacting(cluster: KafkaCluster) -> Iterator[None]:
    """The state topic, as soon as there is something to compact."""
    topic = {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0"}
    broker = {"log.cleaner.backoff.ms": "200"}
    resources = [(ResourceType.TOPIC, GROUPS_TOPIC, topic)]
    resources += [(ResourceType.BROKER, str(node_id), broker) for node_id in cluster.node_ids]
    for kind, name, configs in resources:
        alter(cluster, kind, name, configs, AlterConfigOpType.SET)
    try:
        yield
    finally:
        for kind, name, configs in resources:
            alter(cluster, kind, name, configs, AlterConfigOpType.DELETE)


def alter(
    cluster: KafkaCluster, kind: ResourceType, name: str, configs: dict[str, str], operation: AlterConfigOpType
) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, value in configs.items()]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (altered,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values()
    altered.result(60)


def end_offset(cluster: KafkaCluster, partition: int) -> int:
    with contextlib.closing(Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})) as consumer:
        return consumer.get_watermark_offsets(TopicPartition(GROUPS_TOPIC, partition), timeout=60)[1]


def has_gaps(cluster: KafkaCluster, partition: int, start: int) -> bool:
    """Records behind `start` are missing, because there are later ones with the same key."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.partition.eof": True}
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(GROUPS_TOPIC, partition, start)])
        found = [consumer.poll(60)]
        while found[-1] is not None and found[-1].error() is None:
            found.append(consumer.poll(60))
    offsets = [one.offset() for one in found if one is not None]  # the last one is the end
    return offsets != list(range(start, start + len(offsets)))


# -- a second gateway --------------------------------------------------------------------------------------------------


def test_a_second_gateway_takes_all_groups_over(kafka_cluster: KafkaCluster) -> None:
    groups = [unique("g") for _ in range(5)]
    with GatewayProcess(kafka_cluster) as first, WireClient(first.address_of(1)) as client:
        topic = created_topic(first.bootstrap, unique("t"), 2)
        for group in groups:
            await_commit_at(client, group, topic, 10)

        with GatewayProcess(kafka_cluster, rewriting=True) as second:
            # what the second has read is all that the first has acknowledged
            for group in groups:
                assert committed(second.bootstrap, group, topic, 2) == {0: 10, 1: 10}
                assert commit_at(client, group, topic, 11) == ErrorCode.NOT_COORDINATOR
                assert fetched_at(client, group, topic) == ErrorCode.NOT_COORDINATOR
            with WireClient(second.address_of(1)) as other:
                for group in groups:
                    assert commit_at(other, group, topic, 12) == ErrorCode.NONE
                    assert committed(second.bootstrap, group, topic, 2) == {0: 12, 1: 12}
            assert "another gateway has claimed" in first.log_text()


# -- requests ----------------------------------------------------------------------------------------------------------


def commit_at(client: WireClient, group: str, topic: str, offset: int) -> ErrorCode:
    """A commit of two partitions without membership."""
    partitions = [OffsetCommitRequestPartition(number, offset) for number in range(2)]
    request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=partitions)])
    codes = {one.error_code for one in client.ask(request, 8).topics[0].partitions}
    assert len(codes) == 1
    return ErrorCode(codes.pop())


def await_commit_at(client: WireClient, group: str, topic: str, offset: int) -> None:
    """A gateway that has just started loads its groups."""
    eventually(lambda: commit_at(client, group, topic, offset) == ErrorCode.NONE, f"{group} commits {offset}")


def fetched_at(client: WireClient, group: str, topic: str) -> ErrorCode:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
    return ErrorCode(client.ask(request, 8).groups[0].error_code)


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
