"""What configs belong to, and the rules that AlterConfigs and IncrementalAlterConfigs share."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from holdfast.broker import group_config
from holdfast.broker.broker_overrides import altered
from holdfast.broker.config import MIN_ISR
from holdfast.broker.config_keys import ConfigError
from holdfast.broker.dispatch import Refused, RequestContext
from holdfast.broker.ledger import LEDGER_CONFIGS
from holdfast.broker.slices import counted
from holdfast.broker.topic_config import validate_overrides
from holdfast.broker.topics import invalid_name
from holdfast.coordinator.extensions import Extensions
from holdfast.coordinator.ledger import LEDGER_TOPIC
from holdfast.log.errors import LogError
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

MOST_CONFIGS: Final = 1_000

#: A topic's overrides as they are → as they shall be.
Change = Callable[[Mapping[str, str]], dict[str, str]]


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class _Config(Protocol):
    name: str


class _Resource(Protocol):
    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[_Config]: ...


R = TypeVar("R", bound=_Resource)


async def alter_all(
    broker: Broker, resources: Sequence[R], alter: Callable[[R], Awaitable[None]]
) -> list[tuple[R, ErrorCode, str | None]]:
    """Each resource with what became of it: an error on one changes nothing for the others."""
    seen = await broker.slices.finish(
        counted((resource.resource_type, resource.resource_name) for resource in resources)
    )
    outcomes: list[tuple[R, ErrorCode, str | None]] = []
    async with broker.topics.configuring:
        async for resource in broker.slices.over(resources):
            try:
                if seen[resource.resource_type, resource.resource_name] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                refuse_many_configs(resource.configs)
                _refuse_duplicates(config.name for config in resource.configs)
                await alter(resource)
            except Refused as refusal:
                outcomes.append((resource, refusal.code, refusal.message))
            except LogError as error:
                logger.error("cannot store the configs of %s: %s", resource.resource_name, error)
                outcomes.append((resource, ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            else:
                outcomes.append((resource, ErrorCode.NONE, None))
    return outcomes


async def alter_resource(
    broker: Broker, resource: _Resource, change: Change, *, context: RequestContext, validate_only: bool
) -> None:
    """Applies a change to the one resource; raises `Refused` where it cannot be."""
    if resource.resource_type == ResourceType.TOPIC:
        await _alter_topic(broker, resource.resource_name, change, validate_only=validate_only)
    elif resource.resource_type == ResourceType.BROKER:
        await _alter_broker(broker, resource.resource_name, change, validate_only=validate_only)
    elif resource.resource_type == ResourceType.GROUP:
        await _alter_group(broker, resource.resource_name, change, context, validate_only=validate_only)
    else:
        raise unsupported(resource.resource_type)


def unsupported(resource_type: int) -> Refused:
    if resource_type in ResourceType.__members__.values():
        name = ResourceType(resource_type).name
        return Refused(ErrorCode.INVALID_REQUEST, f"Holdfast has no configs of resource type {name}")
    return Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def check_broker_id(broker: Broker, text: str, what: str, expected: str) -> None:
    """The id in a BROKER resource's name must be ours. `what` and `expected` are how Kafka puts it in the one place
    and in the other."""
    try:
        number = int(text)
    except ValueError:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {text}") from None
    if number != broker.config.node_id:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {number}")


def refuse_null(name: str, value: str | None) -> str:
    if value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
    return value


async def _alter_topic(broker: Broker, name: str, change: Change, *, validate_only: bool) -> None:
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = invalid_name(name)
    if reason:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    topic = broker.topics.get(name)
    # As Kafka: a bad value is told before a missing topic.
    overrides = change(topic.overrides if topic else {})
    try:
        validate_overrides(broker.config, overrides)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if name == LEDGER_TOPIC:
        _refuse_to_break_the_ledger(topic.overrides, overrides)
    unchanged = validate_only or overrides == topic.overrides
    if not unchanged and not await broker.topics.set_overrides(topic, overrides):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _refuse_to_break_the_ledger(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for key in LEDGER_CONFIGS:
        if after.get(key) != before.get(key):
            raise Refused(ErrorCode.INVALID_CONFIG, f"{key} of internal topic {LEDGER_TOPIC} cannot be altered.")


def group_extensions(broker: Broker, name: str) -> Extensions:
    """What is set for a group, be there one of that name or not."""
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    found = broker.groups.coordinator.group_extensions(name)
    if isinstance(found, ErrorCode):
        raise Refused(found, "The group is being loaded.")
    return found


async def _alter_group(
    broker: Broker, name: str, change: Change, context: RequestContext, *, validate_only: bool
) -> None:
    groups = broker.groups
    extensions = group_extensions(broker, name)
    try:
        changes = group_config.changes(extensions, change(group_config.overrides(extensions)))
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    if validate_only or not changes:
        return
    client = groups.client(context)
    answer = groups.ask(
        lambda ticket, now_ms: groups.coordinator.configure_group(name, changes, client, ticket, now_ms)
    )
    code = await answer if isinstance(answer, Coroutine) else answer
    if code != ErrorCode.NONE:
        raise Refused(code, f"The configs of group '{name}' could not be stored.")


async def _alter_broker(broker: Broker, name: str, change: Change, *, validate_only: bool) -> None:
    """Of this broker, or of all if there is no name."""
    if name:
        check_broker_id(broker, name, "Node", str(broker.config.node_id))

    async def alteration() -> None:
        # From reading the configs to storing them, so that no change is lost to another: also if its client goes away.
        async with broker.altering:
            now = broker.config
            if name:
                config = altered(now, now.altered_for_all, _with_min_isr_of_all(now.altered, change(now.altered)))
            else:
                config = altered(now, _with_min_isr(change(now.for_all_brokers)), now.altered)
            if not validate_only and config != now:
                await broker.alter_configs(config)

    try:
        await broker.changes.to_the_end(alteration())
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None


def _with_min_isr(for_all: Mapping[str, str]) -> Mapping[str, str]:
    """In Kafka's words. ELR, eligible leader replicas, is KIP-966; it is enabled in every new cluster of Kafka."""
    if MIN_ISR not in for_all:
        raise Refused(ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
    return for_all


def _with_min_isr_of_all(before: Mapping[str, str], own: Mapping[str, str]) -> Mapping[str, str]:
    if own.get(MIN_ISR) not in (None, before.get(MIN_ISR)):
        raise Refused(ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
    return own


def refuse_many_configs(configs: Sequence[object]) -> None:
    """There are not so many, so one of them would be refused anyway."""
    if len(configs) > MOST_CONFIGS:
        message = f"{len(configs)} configs of one resource; at most {MOST_CONFIGS} are looked at"
        raise Refused(ErrorCode.INVALID_CONFIG, message)


def _refuse_duplicates(names: Iterable[str]) -> None:
    if any(count > 1 for count in Counter(names).values()):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
