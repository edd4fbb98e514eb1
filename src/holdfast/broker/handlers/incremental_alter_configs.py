"""IncrementalAlterConfigs: single configs of a topic: set, deleted, or, for a list, added to and taken from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from holdfast.broker import broker_overrides, topic_config
from holdfast.broker.config import BrokerConfig
from holdfast.broker.config_keys import split_list
from holdfast.broker.config_resources import ResourceType, alter_all, alter_resource, refuse_null
from holdfast.broker.dispatch import Refused, RequestContext, handles
from holdfast.broker.slices import each
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
    context: RequestContext,
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: IncrementalAlterConfigsResource) -> None:
        of_broker = resource.resource_type == ResourceType.BROKER

        def change(current: Mapping[str, str]) -> dict[str, str]:
            lists = _BrokerLists(broker.config, current) if of_broker else _TopicLists(broker.config, current)
            return _changed(current, resource.configs, lists)

        await alter_resource(broker, resource, change, context=context, validate_only=request.validate_only)

    outcomes = await alter_all(broker, request.resources, alter)
    return IncrementalAlterConfigsResponse(responses=await broker.slices.finish(each(_response, outcomes)))


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
    """The lists that can be added to and taken from."""

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
        return broker_overrides.is_list(name)

    def text_of(self, name: str) -> str | None:
        return self._altered.get(name, self._broker.text_of(name))


def _changed(current: Mapping[str, str], changes: list[IncrementalAlterableConfig], lists: _Lists) -> dict[str, str]:
    overrides = dict(current)
    for change in changes:
        if change.config_operation == Operation.DELETE:
            overrides.pop(change.name, None)
            continue
        value = refuse_null(change.name, change.value)
        if change.config_operation == Operation.SET:
            overrides[change.name] = value
        else:
            overrides[change.name] = _changed_list(change, value, lists)
    return overrides


def _changed_list(change: IncrementalAlterableConfig, value: str, lists: _Lists) -> str:
    """What the list holds now, be it set or the default, with the elements of `value` added or removed."""
    if change.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.config_operation}")
    if not lists.has(change.name):
        operation = Operation(change.config_operation).name
        raise Refused(ErrorCode.INVALID_CONFIG, f"Can't {operation} to key {change.name} because its type is not LIST.")
    elements = split_list(lists.text_of(change.name) or "")
    named = split_list(value)
    if change.config_operation == Operation.APPEND:
        return ",".join(dict.fromkeys(elements + named))
    return ",".join(element for element in elements if element not in named)
