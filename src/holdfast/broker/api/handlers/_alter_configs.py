"""The common part of AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.config import group as group_config
from holdfast.broker.config.broker import MIN_ISR
from holdfast.broker.config.dynamic import altered
from holdfast.broker.config.schema import ConfigError, ConfigResourceType
from holdfast.broker.config.topic import validate_overrides
from holdfast.broker.groups.event_log import EVENT_LOG_CONFIGS
from holdfast.broker.storage.topics import invalid_name
from holdfast.broker.util.slices import sliced_count
from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from holdfast.coordinator.group_extensions import Extensions
from holdfast.log.errors import LogError
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

MAX_CONFIGS: Final = 1_000

#: The current overrides of a resource → the new ones.
Change = Callable[[Mapping[str, str]], dict[str, str]]


class _Config(Protocol):
    name: str


class _Resource(Protocol):
    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[_Config]: ...


R = TypeVar("R", bound=_Resource)


async def alter_all(
    services: Services, resources: Sequence[R], alter: Callable[[R], Awaitable[None]]
) -> list[tuple[R, ErrorCode, str | None]]:
    """The result for each resource. An error in one does not affect the others."""
    seen = await services.slices.run(
        sliced_count((resource.resource_type, resource.resource_name) for resource in resources)
    )
    outcomes: list[tuple[R, ErrorCode, str | None]] = []
    async with services.config_lock:
        async for resource in services.slices.iterate(resources):
            try:
                if seen[resource.resource_type, resource.resource_name] > 1:
                    raise PartialError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                reject_too_many_configs(resource.configs)
                _reject_duplicates(config.name for config in resource.configs)
                await alter(resource)
            except PartialError as refusal:
                outcomes.append((resource, refusal.code, refusal.message))
            except LogError as error:
                logger.error("cannot store the configs of %s: %s", resource.resource_name, error)
                outcomes.append((resource, ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            else:
                outcomes.append((resource, ErrorCode.NONE, None))
    return outcomes


async def alter_resource(
    services: Services, resource: _Resource, change: Change, *, context: RequestContext, validate_only: bool
) -> None:
    """Applies a change to one resource. Raises `PartialError` if it is not possible."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        await _alter_topic(services, resource.resource_name, change, validate_only=validate_only)
    elif resource.resource_type == ConfigResourceType.BROKER:
        await _alter_broker(services, resource.resource_name, change, validate_only=validate_only)
    elif resource.resource_type == ConfigResourceType.GROUP:
        await _alter_group(services, resource.resource_name, change, context, validate_only=validate_only)
    else:
        raise unsupported(resource.resource_type)


def unsupported(resource_type: int) -> PartialError:
    if resource_type in ConfigResourceType.__members__.values():
        name = ConfigResourceType(resource_type).name
        return PartialError(ErrorCode.INVALID_REQUEST, f"Holdfast has no configs of resource type {name}")
    return PartialError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def check_broker_id(services: Services, text: str, what: str, expected: str) -> None:
    """The id in a BROKER resource's name must be ours. `what` and `expected` differ between Kafka's messages for
    DescribeConfigs and AlterConfigs."""
    try:
        number = int(text)
    except ValueError:
        raise PartialError(ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {text}") from None
    if number != services.config.node_id:
        raise PartialError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {number}"
        )


def reject_null(name: str, value: str | None) -> str:
    if value is None:
        raise PartialError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
    return value


async def _alter_topic(services: Services, name: str, change: Change, *, validate_only: bool) -> None:
    if not name:
        raise PartialError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = invalid_name(name)
    if reason:
        raise PartialError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    topic = services.topics.get(name)
    # As in Kafka, an invalid value is reported before a missing topic.
    overrides = change(topic.overrides if topic else {})
    try:
        validate_overrides(services.config, overrides)
    except ConfigError as error:
        raise PartialError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if topic is None:
        raise PartialError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if name == LEDGER_TOPIC:
        _reject_event_log_changes(topic.overrides, overrides)
    unchanged = validate_only or overrides == topic.overrides
    if not unchanged and not await services.topics.set_overrides(topic, overrides):
        raise PartialError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _reject_event_log_changes(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for key in EVENT_LOG_CONFIGS:
        if after.get(key) != before.get(key):
            raise PartialError(ErrorCode.INVALID_CONFIG, f"{key} of internal topic {LEDGER_TOPIC} cannot be altered.")


def group_extensions(services: Services, name: str) -> Extensions:
    """The configs of a group, which need not exist."""
    if not name:
        raise PartialError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    found = services.groups.coordinator.group_extensions(name)
    if isinstance(found, ErrorCode):
        is_loading = found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        raise PartialError(found, "The group is being loaded." if is_loading else "Another broker serves the group.")
    return found


async def _alter_group(
    services: Services, name: str, change: Change, context: RequestContext, *, validate_only: bool
) -> None:
    groups = services.groups
    extensions = group_extensions(services, name)
    try:
        changes = group_config.changes(extensions, change(group_config.overrides(extensions)))
    except ConfigError as error:
        raise PartialError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if validate_only or not changes:
        return
    answer = groups.submit(groups.coordinator.configure_group, name, changes, groups.client_of(context))
    code = await answer if isinstance(answer, Coroutine) else answer
    if code != ErrorCode.NONE:
        raise PartialError(code, f"The configs of group '{name}' could not be stored.")


async def _alter_broker(services: Services, name: str, change: Change, *, validate_only: bool) -> None:
    """Of this broker, or the cluster-wide defaults if there is no name."""
    if name:
        check_broker_id(services, name, "Node", str(services.config.node_id))

    async def alteration() -> None:
        # Held from reading the configs to storing them, also if the client disconnects, so that no change is lost.
        async with services.dynamic_config.lock:
            now = services.config
            if name:
                config = altered(
                    now, now.dynamic_defaults, _with_min_isr_of_all(now.dynamic_configs, change(now.dynamic_configs))
                )
            else:
                config = altered(now, _with_min_isr(change(now.cluster_defaults)), now.dynamic_configs)
            if not validate_only and config != now:
                await services.dynamic_config.alter(config)

    try:
        await services.tasks.run(alteration())
    except ConfigError as error:
        raise PartialError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _with_min_isr(for_all: Mapping[str, str]) -> Mapping[str, str]:
    """In Kafka's words. ELR, eligible leader replicas, is KIP-966; it is enabled in every new cluster of Kafka."""
    if MIN_ISR not in for_all:
        raise PartialError(ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
    return for_all


def _with_min_isr_of_all(before: Mapping[str, str], own: Mapping[str, str]) -> Mapping[str, str]:
    if own.get(MIN_ISR) not in (None, before.get(MIN_ISR)):
        raise PartialError(ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
    return own


def reject_too_many_configs(configs: Sequence[object]) -> None:
    """A resource has fewer configs than this limit, so a longer list contains an invalid name."""
    if len(configs) > MAX_CONFIGS:
        message = f"{len(configs)} configs of one resource; at most {MAX_CONFIGS} are accepted"
        raise PartialError(ErrorCode.INVALID_CONFIG, message)


def _reject_duplicates(names: Iterable[str]) -> None:
    if any(count > 1 for count in Counter(names).values()):
        raise PartialError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
