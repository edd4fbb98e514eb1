"""DescribeConfigs: the configs of a topic, of this broker or of a group, with their values and sources."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial

from holdfast.broker.api.handlers._alter_configs import check_broker_id, group_extensions, unsupported
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.config.describe import ConfigEntry, broker_entries, cluster_default_entries, topic_entries
from holdfast.broker.config.group import group_entries
from holdfast.broker.config.schema import ConfigResourceType
from holdfast.broker.storage.topics import invalid_name
from holdfast.broker.util.slices import Work, sliced_map
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


@handler(DESCRIBE_CONFIGS)
def describe_configs(
    services: Services,
    request: DescribeConfigsRequest,
    context: RequestContext,  # noqa: ARG001
) -> Work[DescribeConfigsResponse]:
    # Without duplicates. Otherwise five bytes of a request would become 1,200 bytes of the reply and block the event
    # loop for half a millisecond.
    wanted: dict[tuple[int, str | int], DescribeConfigsResource] = {}
    for resource in request.resources:
        yield
        wanted[_identity(resource)] = resource
    results = yield from sliced_map(partial(_result, services, request), wanted.values())
    return DescribeConfigsResponse(results=results)


def _identity(resource: DescribeConfigsResource) -> tuple[int, str | int]:
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.BROKER:
        with contextlib.suppress(ValueError):
            return resource.resource_type, int(name)
    return resource.resource_type, name


def _result(
    services: Services, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    # As in Kafka, a null or empty list of names selects all configs.
    wanted = set(resource.configuration_keys or ())
    try:
        configs = [
            _described(request, entry) for entry in _entries(services, resource) if not wanted or entry.name in wanted
        ]
    except PartialError as refusal:
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


def _entries(services: Services, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        reason = invalid_name(name)
        if reason:
            raise PartialError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        topic = services.topics.get(name)
        if topic is None:
            raise PartialError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return topic_entries(services.config, topic.overrides)
    if resource.resource_type == ConfigResourceType.BROKER:
        if not name:
            return cluster_default_entries(services.config)
        check_broker_id(services, name, "Broker", f"{services.config.node_id} or empty string")
        return broker_entries(services.config)
    if resource.resource_type == ConfigResourceType.GROUP:
        return group_entries(group_extensions(services, name))
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
