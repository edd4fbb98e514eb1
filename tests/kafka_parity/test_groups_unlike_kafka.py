"""What Holdfast takes for groups and Apache Kafka does not (docs/differences.md, 56 and 57); no play shows it well."""

from __future__ import annotations

import uuid

import pytest

from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.offset_fetch import OFFSET_FETCH
from holdfast.wire.error_codes import ErrorCode
from tests.broker.group_members import WireMember
from tests.broker.wire_client import WireClient
from tests.client_compat.confluent_client import ConfluentClient
from tests.conformance.servers import await_coordinator
from tests.support.apache_kafka import ApacheKafka
from tests.support.holdfast_broker import HoldfastBroker

Server = ApacheKafka | HoldfastBroker

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def synced_with(server: Server, assignment: bytes) -> int:
    """The answer to a lone leader's SyncGroup with this assignment."""
    group = f"large-{uuid.uuid4().hex}"
    await_coordinator(server.address, group)
    with WireMember(server.address, group, "a") as member:
        member.send_join()
        assert member.joined().error_code == ErrorCode.NONE
        member.send_sync({member.member_id: assignment})
        return int(member.synced().error_code)


@pytest.mark.parametrize(("size", "kafkas"), [(900_000, ErrorCode.NONE), (1_200_000, ErrorCode.UNKNOWN_SERVER_ERROR)])
def test_a_group_may_be_larger_than_a_message(
    apache_kafka: ApacheKafka, holdfast: HoldfastBroker, size: int, kafkas: ErrorCode
) -> None:
    assert synced_with(apache_kafka, bytes(size)) == kafkas
    assert synced_with(holdfast, bytes(size)) == ErrorCode.NONE


def commit(server: Server, version: int) -> int | None:
    """The error code; None if the connection was closed."""
    topic, group = f"t-{uuid.uuid4().hex}", f"g-{uuid.uuid4().hex}"
    await_coordinator(server.address, group)
    # Waits for the partition's leader: Kafka answers CreateTopics before its brokers know the topic.
    ConfluentClient().create_topic(server.bootstrap, topic, 1)
    with WireClient(server.address) as client:
        offset = OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 5)])
        try:
            return int(
                client.ask(OffsetCommitRequest(group, topics=[offset]), version).topics[0].partitions[0].error_code
            )
        except ConnectionError:
            return None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_oldest_commits_are_served(apache_kafka: ApacheKafka, holdfast: HoldfastBroker, version: int) -> None:
    assert commit(apache_kafka, version) == (None if version < 2 else ErrorCode.NONE)
    assert commit(holdfast, version) == ErrorCode.NONE


def test_and_are_said_to_be(apache_kafka: ApacheKafka, holdfast: HoldfastBroker) -> None:
    first: list[list[int]] = []
    for server in (apache_kafka, holdfast):
        with WireClient(server.address) as client:
            ranges = {one.api_key: one.min_version for one in client.ask(ApiVersionsRequest(), 0).api_keys}
        first.append([ranges[api.key] for api in (OFFSET_COMMIT, OFFSET_FETCH)])

    assert first == [[2, 1], [0, 0]]
