"""Requests to Holdfast's extensions, and the events of a group in its ledger."""

from __future__ import annotations

import json
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from benchmarks.members import describe
from benchmarks.servers import Broker, Server
from benchmarks.wire import Wire, expect_none
from holdfast.coordinator.events.group_event import LEDGER_TOPIC, EventKind
from holdfast.wire.apis.add_members_to_group import AddMembersToGroupRequest
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest, GroupExtensions
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

_WAIT_MS: Final = 600_000
_GROUP_RESOURCE: Final = 32
_SET: Final = 0
_DESCRIBE_VERSION: Final = 5
_PATIENCE_S: Final = 30.0


def register(server: Server, group: str, instance_ids: list[str]) -> None:
    with Wire(server) as wire:
        response = wire.ask(AddMembersToGroupRequest(group, instance_ids, _WAIT_MS), 0)
    for answer in (response, *response.results):
        expect_none(answer.error_code, "AddMembersToGroup")


def configure(server: Server, group: str, **settings: int) -> None:
    """`target_group_size=3` sets target.group.size."""
    configs = [IncrementalAlterableConfig(name.replace("_", "."), _SET, str(value)) for name, value in settings.items()]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(_GROUP_RESOURCE, group, configs)])
    with Wire(server) as wire:
        (answer,) = wire.ask(request, 1).responses
    expect_none(answer.error_code, "IncrementalAlterConfigs")


def extensions_of(server: Server, group: str) -> GroupExtensions:
    with Wire(server) as wire:
        (described,) = wire.ask(DescribeGroupsRequest([group], include_extensions=True), _DESCRIBE_VERSION).groups
    extensions: GroupExtensions = described.extensions
    return extensions


def leader_of(server: Server, group: str) -> str:
    """The instance id of the leader."""
    leader_id = extensions_of(server, group).leader
    (name,) = (m.group_instance_id for m in describe(server, group).members if m.member_id == leader_id)
    assert name is not None
    return name


def ledger(broker: Broker, group: str) -> list[dict[str, Any]]:
    """The events of the group in Holdfast's ledger, oldest first."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    at = TopicPartition(LEDGER_TOPIC, 0, 0)
    try:
        _, end = consumer.get_watermark_offsets(at, _PATIENCE_S)
        consumer.assign([at])
        events: list[dict[str, Any]] = []
        read = 0
        while read < end:
            message = consumer.poll(_PATIENCE_S)
            value, offset = (message.value(), message.offset()) if message is not None else (None, None)
            if value is None or offset is None:
                raise RuntimeError("the ledger could not be read")
            events.append(json.loads(value))
            read = offset + 1
    finally:
        consumer.close()
    return [event for event in events if event["group_id"] == group]


def generations(events: list[dict[str, Any]]) -> int:
    return sum(event["kind"] == EventKind.GENERATION_FORMED for event in events)
