"""IncrementalAlterConfigs: sets or deletes single configs, or adds and removes elements of lists."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Protocol

from holdfast.broker.api.handlers._alter_configs import alter_all, alter_resource, reject_null
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.config import dynamic as dynamic_config
from holdfast.broker.config import topic as topic_config
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.config.schema import ConfigResourceType, split_list
from holdfast.broker.util.slices import sliced_map
from holdfast.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from holdfast.wire.error_codes import ErrorCode


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@handler(INCREMENTAL_ALTER_CONFIGS)
async def incremental_alter_configs(
    services: Services,
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: IncrementalAlterConfigsResource) -> None:
        of_broker = resource.resource_type == ConfigResourceType.BROKER

        def change(current: Mapping[str, str]) -> dict[str, str]:
            lists = _BrokerLists(services.config, current) if of_broker else _TopicLists(services.config, current)
            return _changed(current, resource.configs, lists)

        await alter_resource(services, resource, change, context=context, validate_only=request.validate_only)

    outcomes = await alter_all(services, request.resources, alter)
    return IncrementalAlterConfigsResponse(responses=await services.slices.run(sliced_map(_response, outcomes)))


def _response(
    outcome: tuple[IncrementalAlterConfigsResource, ErrorCode, str | None],
) -> IncrementalAlterConfigsResourceResponse:
    resource, code, message = outcome
    return IncrementalAlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


class _Lists(Protocol):
    """The configs that are lists."""

    def has(self, name: str) -> bool: ...
    def text_of(self, name: str) -> str | None: ...


class _TopicLists:
    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        self._broker = broker
        self._overrides = overrides

    def has(self, name: str) -> bool:
        return topic_config.is_list(name)

    def text_of(self, name: str) -> str | None:
        return topic_config.text_of(self._broker, self._overrides, name)


class _BrokerLists:
    def __init__(self, broker: BrokerConfig, altered: Mapping[str, str]) -> None:
        self._broker = broker
        self._altered = altered

    def has(self, name: str) -> bool:
        return dynamic_config.is_list(name)

    def text_of(self, name: str) -> str | None:
        return self._altered.get(name, self._broker.text_of(name))


def _changed(current: Mapping[str, str], changes: list[IncrementalAlterableConfig], lists: _Lists) -> dict[str, str]:
    overrides = dict(current)
    for change in changes:
        if change.config_operation == Operation.DELETE:
            overrides.pop(change.name, None)
            continue
        value = reject_null(change.name, change.value)
        if change.config_operation == Operation.SET:
            overrides[change.name] = value
        else:
            overrides[change.name] = _changed_list(change, value, lists)
    return overrides


def _changed_list(change: IncrementalAlterableConfig, value: str, lists: _Lists) -> str:
    """The current value of the list, set or default, with the elements of `value` added or removed."""
    if change.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise PartialError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.config_operation}")
    if not lists.has(change.name):
        operation = Operation(change.config_operation).name
        raise PartialError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation} to key {change.name} because its type is not LIST."
        )
    elements = split_list(lists.text_of(change.name) or "")
    named = split_list(value)
    if change.config_operation == Operation.APPEND:
        return ",".join(dict.fromkeys(elements + named))
    return ",".join(element for element in elements if element not in named)
