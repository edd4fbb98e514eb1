"""IncrementalAlterConfigs: single configs of a topic: set, deleted, or, for a list, added to and taken from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from holdfast.broker.config import BrokerConfig
from holdfast.broker.config_keys import split_list
from holdfast.broker.config_resources import alter_all, alter_resource, refuse_null
from holdfast.broker.dispatch import Refused, RequestContext, handles
from holdfast.broker.topic_config import is_list, text_of
from holdfast.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@handles(INCREMENTAL_ALTER_CONFIGS)
async def incremental_alter_configs(
    broker: Broker,
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,  # noqa: ARG001
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: IncrementalAlterConfigsResource) -> None:
        def change(current: Mapping[str, str]) -> dict[str, str]:
            return _changed(broker.config, current, resource.configs)

        await alter_resource(broker, resource, change, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, code, message in await alter_all(broker, request.resources, alter)
        ]
    )


def _changed(
    broker: BrokerConfig, current: Mapping[str, str], changes: list[IncrementalAlterableConfig]
) -> dict[str, str]:
    overrides = dict(current)
    for change in changes:
        if change.config_operation == Operation.DELETE:
            overrides.pop(change.name, None)
            continue
        value = refuse_null(change.name, change.value)
        if change.config_operation == Operation.SET:
            overrides[change.name] = value
        else:
            overrides[change.name] = _changed_list(broker, current, change, value)
    return overrides


def _changed_list(
    broker: BrokerConfig, current: Mapping[str, str], change: IncrementalAlterableConfig, value: str
) -> str:
    """What the list holds now, be it the topic's own or the default, with the elements of `value` added or removed."""
    if change.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.config_operation}")
    if not is_list(change.name):
        operation = Operation(change.config_operation).name
        raise Refused(ErrorCode.INVALID_CONFIG, f"Can't {operation} to key {change.name} because its type is not LIST.")
    elements = split_list(text_of(broker, current, change.name) or "")
    named = split_list(value)
    if change.config_operation == Operation.APPEND:
        return ",".join(dict.fromkeys(elements + named))
    return ",".join(element for element in elements if element not in named)
