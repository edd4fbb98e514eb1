"""DescribeConfigs: every config of a topic, of this broker or of a group, its value, and where that comes from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.broker.config_entries import ConfigEntry, broker_entries, entries_for_all_brokers, topic_entries
from holdfast.broker.config_resources import ResourceType, check_broker_id, group_extensions, unsupported
from holdfast.broker.dispatch import Refused, RequestContext, handles
from holdfast.broker.group_config import group_entries
from holdfast.broker.slices import Work, each
from holdfast.broker.topics import invalid_name
from holdfast.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
    DescribedConfigSynonym,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(DESCRIBE_CONFIGS)
def describe_configs(
    broker: Broker,
    request: DescribeConfigsRequest,
    context: RequestContext,  # noqa: ARG001
) -> Work[DescribeConfigsResponse]:
    # Each of them once, however it is spelt: five bytes of request would otherwise be 1,200 of reply, and half a
    # millisecond of everybody's.
    wanted: dict[tuple[int, str | int], DescribeConfigsResource] = {}
    for resource in request.resources:
        yield
        wanted[_identity(resource)] = resource
    results = yield from each(partial(_result, broker, request), wanted.values())
    return DescribeConfigsResponse(results=results)


def _identity(resource: DescribeConfigsResource) -> tuple[int, str | int]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.BROKER:
        with contextlib.suppress(ValueError):
            return resource.resource_type, int(name)
    return resource.resource_type, name


def _result(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    # As Kafka: neither a list of names that is null nor one that is empty narrows anything down.
    wanted = set(resource.configuration_keys or ())
    try:
        configs = [
            _described(request, entry) for entry in _entries(broker, resource) if not wanted or entry.name in wanted
        ]
    except Refused as refusal:
        code, message, configs = refusal.code, refusal.message, []
    else:
        code, message = ErrorCode.NONE, ""
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _entries(broker: Broker, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        reason = invalid_name(name)
        if reason:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        topic = broker.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return topic_entries(broker.config, topic.overrides)
    if resource.resource_type == ResourceType.BROKER:
        if not name:
            return entries_for_all_brokers(broker.config)
        check_broker_id(broker, name, "Broker", f"{broker.config.node_id} or empty string")
        return broker_entries(broker.config)
    if resource.resource_type == ResourceType.GROUP:
        return group_entries(group_extensions(broker, name))
    raise unsupported(resource.resource_type)


def _described(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribedConfig:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribedConfig(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[DescribedConfigSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
