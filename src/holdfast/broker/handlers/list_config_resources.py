"""ListConfigResources: the names of topics, of this broker, and of the groups that have configs of their own.

Configs of brokers' loggers and client metrics do not exist (docs/differences.md, 11): there are none to list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.config_resources import ResourceType
from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.slices import Work
from holdfast.wire.apis.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

FIRST_WITH_TYPES: Final = 1
ALL_TYPES: Final = frozenset(ResourceType)


@handles(LIST_CONFIG_RESOURCES)
def list_config_resources(broker: Broker, request: ListConfigResourcesRequest, context: RequestContext) -> Any:
    if context.api_version < FIRST_WITH_TYPES:
        return ListConfigResourcesResponse()
    types = frozenset(request.resource_types) or ALL_TYPES
    if not types <= ALL_TYPES:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names: list[tuple[ResourceType, list[str]]] = []
    if ResourceType.GROUP in types:
        groups = broker.groups.coordinator.configured_groups()
        if isinstance(groups, ErrorCode):
            return ListConfigResourcesResponse(error_code=groups)
        names.append((ResourceType.GROUP, groups))
    if ResourceType.BROKER in types:
        names.append((ResourceType.BROKER, [str(broker.node_id)]))
    if ResourceType.TOPIC in types:
        names.append((ResourceType.TOPIC, [topic.name for topic in broker.topics]))

    return _listed(names)


def _listed(names: Sequence[tuple[ResourceType, Sequence[str]]]) -> Work[ListConfigResourcesResponse]:
    response = ListConfigResourcesResponse()
    for kind, of_kind in names:
        for name in of_kind:
            response.config_resources.append(ConfigResource(name, kind))
            yield
    return response
