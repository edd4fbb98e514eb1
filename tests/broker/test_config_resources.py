"""ListConfigResources: what has configs, by type."""

from __future__ import annotations

from pathlib import Path

from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.list_config_resources import ListConfigResourcesRequest
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.wire_client import WireClient
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
COORDINATOR_LOAD_IN_PROGRESS, UNSUPPORTED_VERSION = 14, 35
SET, DELETE = 0, 1


def listed(client: WireClient, *types: int, version: int = 1) -> set[tuple[int, str]]:
    response = client.ask(ListConfigResourcesRequest(list(types)), version)
    assert response.error_code == 0
    return {(found.resource_type, found.resource_name) for found in response.config_resources}


def configure(client: WireClient, group: str, operation: int, value: str | None) -> None:
    config = IncrementalAlterableConfig("target.group.size", operation, value)
    resource = IncrementalAlterConfigsResource(GROUP, group, [config])
    (answer,) = client.ask(IncrementalAlterConfigsRequest([resource], False), 1).responses
    assert answer.error_code == 0, answer


def commit(client: WireClient, group: str, topic: str) -> None:
    """Makes a group that has no configs."""
    partitions = [OffsetCommitRequestPartition(0, 0, committed_metadata="")]
    request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=partitions)])
    eventually(lambda: client.ask(request, 8).topics[0].partitions[0].error_code == 0, f"{group} is there")


def test_topics_the_broker_and_configured_groups_are_listed(tmp_path: Path) -> None:
    broker = HoldfastBroker(directory=tmp_path)
    with broker:
        with WireClient(broker.address) as client:
            client.create_topic("orders")
            client.create_topic("payments")
            configure(client, "grown", SET, "3")
            commit(client, "plain", "orders")
            # No reply waits for the topic of the groups' events, so it may come later than the others.
            eventually(lambda: (TOPIC, "__group_ledger") in listed(client, TOPIC), "the ledger is there")
            everything = listed(client)
            assert {(TOPIC, "orders"), (TOPIC, "payments"), (TOPIC, "__consumer_offsets")} <= everything
            assert {found for found in everything if found[0] != TOPIC} == {(BROKER, "1"), (GROUP, "grown")}

            assert listed(client, TOPIC) == {found for found in everything if found[0] == TOPIC}
            assert listed(client, BROKER, GROUP, BROKER) == {(BROKER, "1"), (GROUP, "grown")}
            assert listed(client, BROKER_LOGGER, CLIENT_METRICS) == set()
            assert listed(client, version=0) == set()
            for types in ([99], [TOPIC, 1], [-1]):
                answer = client.ask(ListConfigResourcesRequest(types), 1)
                assert (answer.error_code, answer.config_resources) == (UNSUPPORTED_VERSION, [])
        broker.restart()
        with WireClient(broker.address) as client:
            request = ListConfigResourcesRequest([GROUP])
            eventually(
                lambda: client.ask(request, 1).error_code != COORDINATOR_LOAD_IN_PROGRESS, "the groups are loaded"
            )
            assert listed(client, GROUP) == {(GROUP, "grown")}
            configure(client, "grown", DELETE, None)
            assert listed(client, GROUP) == set()
