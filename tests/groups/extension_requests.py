"""What Holdfast's own APIs and group configs are asked in these tests; the members themselves are ordinary clients."""

from typing import Any

from holdfast.wire.apis.add_members_to_group import AddMembersToGroupRequest
from holdfast.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest, GroupExtensions
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.error_codes import ErrorCode
from tests.broker.wire_client import WireClient
from tests.client_compat.servers import Server

GROUP_RESOURCE = 32
SET = 0
REGISTRATION_MS = 300_000
"""Longer than a test takes to start all whom it has registered."""


def register(server: Server, group: str, *instance_ids: str, wait_ms: int = REGISTRATION_MS) -> None:
    response = _ask(server, AddMembersToGroupRequest(group, list(instance_ids), wait_ms), 0)
    results = [response, *response.results]
    assert {result.error_code for result in results} == {ErrorCode.NONE}, response


def configure(server: Server, group: str, **settings: int) -> None:
    """`target_group_size=2` sets target.group.size."""
    configs = [IncrementalAlterableConfig(name.replace("_", "."), SET, str(value)) for name, value in settings.items()]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(GROUP_RESOURCE, group, configs)])
    (response,) = _ask(server, request, 1).responses
    assert response.error_code == ErrorCode.NONE, response


def configs_of(server: Server, group: str) -> dict[str, str | None]:
    request = DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, group, configuration_keys=None)])
    (result,) = _ask(server, request, 4).results
    assert result.error_code == ErrorCode.NONE, result
    return {config.name: config.value for config in result.configs}


def extensions_of(server: Server, group: str) -> GroupExtensions:
    (described,) = _ask(server, DescribeGroupsRequest([group], include_extensions=True), 5).groups
    extensions: GroupExtensions = described.extensions
    return extensions


def expected_of(server: Server, group: str) -> set[str]:
    """The instance ids that are registered and have not come."""
    return {member.group_instance_id for member in extensions_of(server, group).expected if not member.arrived}


def instances_of(server: Server, group: str) -> dict[str, str]:
    """The member id of every static member, by instance id."""
    (described,) = _ask(server, DescribeGroupsRequest([group]), 5).groups
    return {member.group_instance_id: member.member_id for member in described.members}


def commit_as(server: Server, group: str, generation: int, member_id: str, topic: str, offset: int) -> ErrorCode:
    """How a commit is answered that says it comes from this member."""
    request = OffsetCommitRequest(
        group,
        generation,
        member_id,
        topics=[
            OffsetCommitRequestTopic(
                topic, partitions=[OffsetCommitRequestPartition(0, offset, committed_metadata=None)]
            )
        ],
    )
    (answered,) = _ask(server, request, 8).topics
    return ErrorCode(answered.partitions[0].error_code)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["kind"] for event in events]


def _ask(server: Server, message: Any, version: int) -> Any:
    host, port = server.bootstrap.split(":")
    with WireClient((host, int(port))) as wire:
        return wire.ask(message, version)
