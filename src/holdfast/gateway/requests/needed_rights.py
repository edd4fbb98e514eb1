"""The rights that the check of each group request asks for (`holdfast.broker.api.checks`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from holdfast.broker.api.handlers.find_coordinator import BATCHED_SINCE, GROUP
from holdfast.broker.authorization.acls import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from holdfast.broker.config.schema import ConfigResourceType
from holdfast.gateway.requests.context import GatewayServices
from holdfast.gateway.requests.rights import Right
from holdfast.wire.apis.add_members_to_group import ADD_MEMBERS_TO_GROUP
from holdfast.wire.apis.alter_configs import ALTER_CONFIGS
from holdfast.wire.apis.cancel_registration import CANCEL_REGISTRATION
from holdfast.wire.apis.delete_groups import DELETE_GROUPS
from holdfast.wire.apis.describe_configs import DESCRIBE_CONFIGS
from holdfast.wire.apis.describe_groups import DESCRIBE_GROUPS
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR
from holdfast.wire.apis.heartbeat import HEARTBEAT
from holdfast.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.join_groups import JOIN_GROUPS
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.list_groups import LIST_GROUPS
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT
from holdfast.wire.apis.offset_delete import OFFSET_DELETE
from holdfast.wire.apis.offset_fetch import OFFSET_FETCH
from holdfast.wire.apis.release_group import RELEASE_GROUP
from holdfast.wire.apis.sync_group import SYNC_GROUP

_GROUP, _TOPIC = ResourceType.GROUP, ResourceType.TOPIC
_READ, _DESCRIBE, _DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE

Needed = Callable[[Any, int, GatewayServices], Iterable[Right]]


def needed_rights(api_key: int, request: Any, version: int, services: GatewayServices) -> Iterable[Right]:
    needed = _NEEDED.get(api_key)
    return () if needed is None else needed(request, version, services)


def _one_group(operation: Operation) -> Needed:
    return lambda request, version, services: [(operation, _GROUP, request.group_id)]  # noqa: ARG005


def _find_coordinator(request: Any, version: int, services: GatewayServices) -> Iterable[Right]:  # noqa: ARG001
    if request.key_type != GROUP:
        return ()  # Kafka checks these itself
    keys = request.coordinator_keys if version >= BATCHED_SINCE else [request.key]
    return [(_DESCRIBE, _GROUP, key) for key in keys]


def _describe_groups(request: Any, version: int, services: GatewayServices) -> Iterable[Right]:  # noqa: ARG001
    operations = OPERATIONS[_GROUP] if request.include_authorized_operations else (_DESCRIBE,)
    return [(operation, _GROUP, name) for name in request.groups for operation in operations]


def _list_groups(request: Any, version: int, services: GatewayServices) -> Iterable[Right]:  # noqa: ARG001
    _, listed = services.groups.coordinator.list_groups([], [])
    return [(_DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME), *((_DESCRIBE, _GROUP, one.group_id) for one in listed)]


def _delete_groups(request: Any, version: int, services: GatewayServices) -> Iterable[Right]:  # noqa: ARG001
    return [(_DELETE, _GROUP, name) for name in request.groups_names]


def _offset_commit(request: Any, version: int, services: GatewayServices) -> Iterable[Right]:  # noqa: ARG001
    return [(_READ, _GROUP, request.group_id), *_topics(_READ, request.topics, services)]


def _offset_delete(request: Any, version: int, services: GatewayServices) -> Iterable[Right]:  # noqa: ARG001
    return [(_DELETE, _GROUP, request.group_id), *((_READ, _TOPIC, topic.name) for topic in request.topics)]


def _offset_fetch(request: Any, version: int, services: GatewayServices) -> Iterator[Right]:
    groups = request.groups if version >= 8 else [request]
    for group in groups:
        yield _DESCRIBE, _GROUP, group.group_id
        if group.topics is None:
            found = services.own_groups.committed_topics(group.group_id)
            yield from ((_DESCRIBE, _TOPIC, name) for name in found)
        else:
            yield from _topics(_DESCRIBE, group.topics, services)


def _topics(operation: Operation, topics: Iterable[Any], services: GatewayServices) -> Iterator[Right]:
    for topic in topics:
        name = topic.name
        if not name:
            known = services.topics.by_id(topic.topic_id)
            name = "" if known is None else known.name
        if name:
            yield operation, _TOPIC, name


def _group_configs(operation: Operation) -> Needed:
    return lambda request, version, services: [  # noqa: ARG005
        (operation, _GROUP, resource.resource_name)
        for resource in request.resources
        if resource.resource_type == ConfigResourceType.GROUP
    ]


_NEEDED: Final[Mapping[int, Needed]] = {
    **{
        api.key: _one_group(_READ)
        for api in (
            JOIN_GROUP,
            JOIN_GROUPS,
            SYNC_GROUP,
            HEARTBEAT,
            LEAVE_GROUP,
            ADD_MEMBERS_TO_GROUP,
            CANCEL_REGISTRATION,
        )
    },
    FIND_COORDINATOR.key: _find_coordinator,
    DESCRIBE_GROUPS.key: _describe_groups,
    LIST_GROUPS.key: _list_groups,
    DELETE_GROUPS.key: _delete_groups,
    RELEASE_GROUP.key: _one_group(_DELETE),
    OFFSET_COMMIT.key: _offset_commit,
    OFFSET_FETCH.key: _offset_fetch,
    OFFSET_DELETE.key: _offset_delete,
    DESCRIBE_CONFIGS.key: _group_configs(Operation.DESCRIBE_CONFIGS),
    ALTER_CONFIGS.key: _group_configs(Operation.ALTER_CONFIGS),
    INCREMENTAL_ALTER_CONFIGS.key: _group_configs(Operation.ALTER_CONFIGS),
}
