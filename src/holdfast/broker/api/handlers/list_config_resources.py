"""ListConfigResources: the names of topics, of this broker, and of the groups that have configs of their own.

There are no configs of broker loggers or client metrics (docs/differences.md, 11), so none are listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.config.schema import ConfigResourceType
from holdfast.broker.util.slices import Work
from holdfast.wire.apis.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from holdfast.wire.error_codes import ErrorCode

FIRST_WITH_TYPES: Final = 1
ALL_TYPES: Final = frozenset(ConfigResourceType)


@handler(LIST_CONFIG_RESOURCES)
def list_config_resources(services: Services, request: ListConfigResourcesRequest, context: RequestContext) -> Any:
    if context.api_version < FIRST_WITH_TYPES:
        return ListConfigResourcesResponse()
    types = frozenset(request.resource_types) or ALL_TYPES
    if not types <= ALL_TYPES:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names: list[tuple[ConfigResourceType, list[str]]] = []
    if ConfigResourceType.GROUP in types:
        groups = services.groups.coordinator.configured_groups()
        if isinstance(groups, ErrorCode):
            return ListConfigResourcesResponse(error_code=groups)
        names.append((ConfigResourceType.GROUP, groups))
    if ConfigResourceType.BROKER in types:
        names.append((ConfigResourceType.BROKER, [str(services.node_id)]))
    if ConfigResourceType.TOPIC in types:
        names.append((ConfigResourceType.TOPIC, [topic.name for topic in services.topics]))

    return _listed(names)


def _listed(names: Sequence[tuple[ConfigResourceType, Sequence[str]]]) -> Work[ListConfigResourcesResponse]:
    response = ListConfigResourcesResponse()
    for kind, of_kind in names:
        for name in of_kind:
            response.config_resources.append(ConfigResource(name, kind))
            yield
    return response
