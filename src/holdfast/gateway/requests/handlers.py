"""The gateway's own handlers: requests that concern groups of the gateway as well as Kafka.

They are generator functions that yield what they wait for, as the handlers of the broker (`broker.util.slices`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from holdfast.broker.api.checks.base import GROUP_DENIED, MESSAGES, resolve
from holdfast.broker.api.handlers.find_coordinator import BATCHED_SINCE, GROUP
from holdfast.broker.api.registry import HANDLERS, Handler
from holdfast.broker.api.rejected_transactions import RejectedTransactionsLog
from holdfast.broker.authorization.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.broker.config.schema import ConfigResourceType
from holdfast.broker.util.slices import Work
from holdfast.gateway.group_names import PROTOCOL_TYPE
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.own_groups import ReleaseRefused
from holdfast.gateway.requests.context import GatewayServices, RoutedContext
from holdfast.wire.apis.add_offsets_to_txn import (
    ADD_OFFSETS_TO_TXN,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from holdfast.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse
from holdfast.wire.apis.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from holdfast.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from holdfast.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES, ConfigResource, ListConfigResourcesRequest
from holdfast.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest, ListGroupsResponse
from holdfast.wire.apis.offset_delete import OFFSET_DELETE, OffsetDeleteRequest
from holdfast.wire.apis.release_group import RELEASE_GROUP, ReleaseGroupRequest, ReleaseGroupResponse
from holdfast.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import partition_for
from holdfast.wire.message import Api

_refused_transactions: Final = RejectedTransactionsLog(
    "exactly-once with offsets refused: the gateway keeps the offsets of its groups itself"
)


def own_handler(api: Api, function: Callable[..., Any]) -> Handler:
    return Handler(api, function, api.versions, api.versions)


# -- FindCoordinator ---------------------------------------------------------------------------------------------------


def node_of(services: GatewayServices, group_id: str) -> int:
    """The broker whose address at the gateway serves the group. Any other serves it too, with one hop less to name."""
    nodes = services.brokers.node_ids
    return nodes[partition_for(group_id, services.groups.group_log.partition_count) % len(nodes)]


def find_coordinator(
    services: GatewayServices, request: FindCoordinatorRequest, context: RoutedContext
) -> Work[FindCoordinatorResponse]:
    """Of a group: this gateway. Of a transaction: the broker that Kafka names."""
    if request.key_type != GROUP:
        response: FindCoordinatorResponse = yield context.client.ask(request, context.api_version)
        return response
    if context.api_version >= BATCHED_SINCE:
        return FindCoordinatorResponse(coordinators=[_found(services, key) for key in request.coordinator_keys])
    found = _found(services, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or ErrorCode.NONE.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _found(services: GatewayServices, group_id: str) -> FoundCoordinator:
    node_id = node_of(services, group_id)
    host, port = services.brokers.advertised(node_id)
    return FoundCoordinator(group_id, node_id, host, port, ErrorCode.NONE, "")


# -- ListGroups and DescribeGroups -------------------------------------------------------------------------------------


def list_groups(services: GatewayServices, request: ListGroupsRequest, context: RoutedContext) -> Work[Any]:
    """Tools ask every broker: each address of the gateway lists its part of the groups, and those in Kafka, as far as
    Kafka lists them to this client."""
    code, listed = services.groups.coordinator.list_groups(request.states_filter, request.types_filter)
    node_id, permissions = context.client.node_id, context.session.permissions
    assert permissions is not None
    sees_all = permissions.can_see(ResourceType.CLUSTER, CLUSTER_NAME)
    own = [
        one
        for one in listed
        if (node_id is None or node_of(services, one.group_id) == node_id)
        and (sees_all or permissions.can_see(ResourceType.GROUP, one.group_id))
    ]
    response: ListGroupsResponse = yield context.client.ask(request, context.api_version)
    names = {one.group_id for one in own}
    in_kafka = [one for one in response.groups if one.protocol_type != PROTOCOL_TYPE and one.group_id not in names]
    return ListGroupsResponse(error_code=code or response.error_code, groups=own + in_kafka)


def describe_groups(
    services: GatewayServices, request: DescribeGroupsRequest, context: RoutedContext
) -> Work[DescribeGroupsResponse]:
    """Groups that the gateway does not have may be in Kafka, with members or without."""
    coordinator = services.groups.coordinator
    names = dict.fromkeys(request.groups)
    own = [name for name in names if services.own_groups.is_own(name)]
    others = [name for name in names if not services.own_groups.is_own(name)]
    handler = HANDLERS[DESCRIBE_GROUPS.key]
    response: DescribeGroupsResponse = yield from resolve(
        handler.function(services, replace(request, groups=own), context)
    )
    for name in others:
        try:
            described: DescribedGroup | None = yield services.own_groups.describe_in_kafka(name)
        except KafkaRefused as refused:
            described = DescribedGroup(group_id=name, error_code=refused.code)
        except KafkaUnreachable:
            described = DescribedGroup(group_id=name, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response.groups.append(described or coordinator.describe_group(name, context.api_version))
    return response


def delete_groups(services: GatewayServices, request: DeleteGroupsRequest, context: RoutedContext) -> Work[Any]:
    """Groups that the gateway does not have may be in Kafka."""
    handler = HANDLERS[DELETE_GROUPS.key]
    response: DeleteGroupsResponse = yield handler.function(services, request, context)
    for result in response.results:
        if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            try:
                described = yield services.own_groups.describe_in_kafka(result.group_id)
                if described is not None:
                    result.error_code = yield services.own_groups.delete_in_kafka(result.group_id)
            except (KafkaRefused, KafkaUnreachable):
                result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response


def offset_delete(services: GatewayServices, request: OffsetDeleteRequest, context: RoutedContext) -> Work[Any]:
    """A group without members whose last offset is deleted does not exist any more."""
    had_history = services.groups.coordinator.queries.has_history(request.group_id)
    response: Any = yield HANDLERS[OFFSET_DELETE.key].function(services, request, context)
    if had_history and not services.own_groups.is_own(request.group_id):
        services.own_groups.deleted(request.group_id)
    return response


# -- configs -----------------------------------------------------------------------------------------------------------


def split_configs(checked: Callable[..., Any], results: str) -> Callable[..., Work[Any]]:
    """GROUP resources for the coordinator, with its check; the others for Kafka, which checks them itself. `results` is
    the name of their list in the response."""

    def handle(services: GatewayServices, request: Any, context: RoutedContext) -> Work[Any]:
        groups = [one for one in request.resources if one.resource_type == ConfigResourceType.GROUP]
        others = [one for one in request.resources if one.resource_type != ConfigResourceType.GROUP]
        response: Any = None
        if others or not groups:
            response = yield context.client.ask(replace(request, resources=others), context.api_version)
        if groups:
            own = yield from resolve(checked(services, replace(request, resources=groups), context))
            if hasattr(own, "__await__"):
                own = yield own
            if response is None:
                return own
            setattr(response, results, getattr(response, results) + getattr(own, results))
        return response

    return handle


def list_config_resources(
    services: GatewayServices, request: ListConfigResourcesRequest, context: RoutedContext
) -> Work[Any]:
    response: Any = yield context.client.ask(request, context.api_version)
    if response.error_code or not _wants_groups(request, context.api_version):
        return response
    configured = services.groups.coordinator.configured_groups()
    if isinstance(configured, ErrorCode):
        response.error_code = configured
        return response
    kept = [one for one in response.config_resources if one.resource_type != ConfigResourceType.GROUP]
    response.config_resources = kept + [ConfigResource(name, ConfigResourceType.GROUP) for name in configured]
    return response


def _wants_groups(request: ListConfigResourcesRequest, version: int) -> bool:
    return version >= 1 and (not request.resource_types or ConfigResourceType.GROUP in request.resource_types)


# -- transactions ------------------------------------------------------------------------------------------------------


def add_offsets_to_txn(
    _services: GatewayServices, request: AddOffsetsToTxnRequest, context: RoutedContext
) -> AddOffsetsToTxnResponse:
    """Forwarded, Kafka would store offsets of a group that it does not have."""
    _refused_transactions.log(context.client_id, context.client_host, request.transactional_id)
    return AddOffsetsToTxnResponse(error_code=GROUP_DENIED)


def txn_offset_commit(
    _services: GatewayServices, request: TxnOffsetCommitRequest, context: RoutedContext
) -> TxnOffsetCommitResponse:
    _refused_transactions.log(context.client_id, context.client_host, request.transactional_id)
    return TxnOffsetCommitResponse(topics=list(_refused_topics(request)))


def _refused_topics(request: TxnOffsetCommitRequest) -> Iterator[TxnOffsetCommitResponseTopic]:
    for topic in request.topics:
        partitions = [TxnOffsetCommitResponsePartition(one.partition_index, GROUP_DENIED) for one in topic.partitions]
        yield TxnOffsetCommitResponseTopic(topic.name, partitions)


# -- release -----------------------------------------------------------------------------------------------------------


def release_group(services: GatewayServices, request: ReleaseGroupRequest, context: RoutedContext) -> Work[Any]:
    permissions = context.session.permissions
    assert permissions is not None
    if not permissions.group(Operation.DELETE, request.group_id):
        return ReleaseGroupResponse(error_code=GROUP_DENIED, error_message=MESSAGES[GROUP_DENIED])
    try:
        count: int = yield services.own_groups.release(request.group_id)
    except ReleaseRefused as refused:
        return ReleaseGroupResponse(error_code=refused.code, error_message=str(refused))
    except KafkaRefused as refused:
        return ReleaseGroupResponse(error_code=refused.code, error_message=str(refused))
    except KafkaUnreachable as error:
        return ReleaseGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=str(error))
    return ReleaseGroupResponse(partition_count=count)


OWN_HANDLERS: Final = {
    entry.api.key: entry
    for entry in (
        own_handler(ADD_OFFSETS_TO_TXN, add_offsets_to_txn),
        own_handler(TXN_OFFSET_COMMIT, txn_offset_commit),
        own_handler(LIST_CONFIG_RESOURCES, list_config_resources),
        own_handler(LIST_GROUPS, list_groups),
        own_handler(RELEASE_GROUP, release_group),
    )
}
"""Handlers without a check, because they have their own or need none."""

CHECKED_HANDLERS: Final = {
    entry.api.key: entry
    for entry in (
        own_handler(FIND_COORDINATOR, find_coordinator),
        own_handler(DELETE_GROUPS, delete_groups),
        own_handler(OFFSET_DELETE, offset_delete),
        own_handler(DESCRIBE_GROUPS, describe_groups),
    )
}
