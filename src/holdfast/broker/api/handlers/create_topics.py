"""CreateTopics: creates topics, or only validates the request if `validate_only` is set."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.broker.api.handlers._alter_configs import reject_too_many_configs
from holdfast.broker.api.handlers._common import check_assignment, reject_internal_topic
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.config.describe import topic_entries
from holdfast.broker.config.schema import ConfigError
from holdfast.broker.config.topic import validate_overrides
from holdfast.broker.storage.topics import NewTopic, Topics, invalid_name
from holdfast.broker.util.slices import Work, sliced_count
from holdfast.log import LogError
from holdfast.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicResult,
    CreatableTopicResultConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

DEFAULT: Final = -1
REPLICAS: Final = 1
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""Kafka's limit as well."""
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The topic of Kafka's controllers; clients cannot use the name."""


@handler(CREATE_TOPICS)
async def create_topics(
    services: Services,
    request: CreateTopicsRequest,
    context: RequestContext,  # noqa: ARG001
) -> CreateTopicsResponse:
    times = await services.slices.run(sliced_count(wanted.name for wanted in request.topics))
    duplicates = [name for name, count in times.items() if count > 1]
    wanted = [
        one
        async for one in services.slices.iterate(request.topics)
        if times[one.name] == 1 and one.name != CLUSTER_METADATA
    ]
    results = await services.tasks.run(_create_all(services, wanted, validate_only=request.validate_only))
    results += [_refusal(name, PartialError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")) for name in duplicates]
    if times[CLUSTER_METADATA] == 1:
        message = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
        results.append(_refusal(CLUSTER_METADATA, PartialError(ErrorCode.INVALID_REQUEST, message)))
    return CreateTopicsResponse(topics=results)


async def _create_all(
    services: Services, wanted: Sequence[CreatableTopic], *, validate_only: bool
) -> list[CreatableTopicResult]:
    """Creates all valid topics with one write to disk."""
    too_many = await services.slices.run(_partitions_asked_for(services, wanted)) > MAX_PARTITIONS_PER_REQUEST
    checked: dict[str, NewTopic | PartialError] = {}
    unified: dict[str, str] = {}
    async for one in services.slices.iterate(wanted):
        try:
            if too_many:
                message = "Excessively large number of partitions per request."
                raise PartialError(ErrorCode.POLICY_VIOLATION, message)
            checked[one.name] = _checked(services, one, unified)
        except PartialError as refused:
            checked[one.name] = refused
        await asyncio.sleep(0)
    new = [found async for found in services.slices.iterate(checked.values()) if isinstance(found, NewTopic)]
    ids: dict[str, bytes | PartialError] = {}
    if validate_only:
        ids = {one.name: uuid.uuid4().bytes async for one in services.slices.iterate(new)}
    else:
        ids = await _create(services, new)
    results: list[CreatableTopicResult] = []
    async for name, found in services.slices.iterate(checked.items()):
        outcome = ids[name] if isinstance(found, NewTopic) else found
        if isinstance(found, NewTopic) and isinstance(outcome, bytes):
            results.append(_result(services, found, outcome))
        elif isinstance(outcome, PartialError):
            results.append(_refusal(name, outcome))
        await asyncio.sleep(0)
    return results


async def create_topic(services: Services, wanted: CreatableTopic) -> None:
    """Creates one topic. Raises `PartialError` if that is not possible."""
    (outcome,) = (await _create(services, [_checked(services, wanted, {})])).values()
    if isinstance(outcome, PartialError):
        raise outcome


def _checked(services: Services, wanted: CreatableTopic, unified: dict[str, str]) -> NewTopic:
    """The topic to create; `unified` has the earlier names of the request, which must not collide."""
    name = wanted.name
    if services.topics.get(name) is not None:
        raise _exists(name)
    _check_name(services.topics, name, unified)
    overrides = _overrides(services, wanted)
    partition_count = _partition_count(services, wanted)
    unified[name.replace(".", "_")] = name
    return NewTopic(name, partition_count, overrides)


async def _create(services: Services, new: Sequence[NewTopic]) -> dict[str, bytes | PartialError]:
    """The id of each topic, or the error."""
    try:
        topics = await services.topics.create_all(new)
    except LogError as error:
        logger.error("topic %s cannot be created: %s", ",".join(one.name for one in new[:10]), error)
        return {one.name: PartialError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) for one in new}
    return {one.name: _exists(one.name) if topic is None else topic.id for one, topic in zip(new, topics, strict=True)}


def _exists(name: str) -> PartialError:
    return PartialError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _result(services: Services, new: NewTopic, topic_id: bytes) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=new.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=new.partition_count,
        replication_factor=REPLICAS,
        configs=[
            CreatableTopicResultConfig(entry.name, entry.value, entry.read_only, entry.source, entry.sensitive)
            for entry in topic_entries(services.config, new.overrides)
        ],
    )


def _check_name(topics: Topics, name: str, asked_before: Mapping[str, str]) -> None:
    reject_internal_topic(name, "Creation")
    reason = invalid_name(name)
    if reason is not None:
        raise PartialError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    # As in Kafka, two names must not differ only in dots and underscores, because Kafka's metrics replace dots with
    # underscores.
    if "." in name or "_" in name:
        unified = name.replace(".", "_")
        existing = (topic.name for topic in topics if topic.name.replace(".", "_") == unified)
        other = next(existing, asked_before.get(unified))
        if other is not None:
            message = f"Topic '{name}' collides with existing topic: {other}"
            raise PartialError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _overrides(services: Services, wanted: CreatableTopic) -> dict[str, str]:
    reject_too_many_configs(wanted.configs)
    unset = [config.name for config in wanted.configs if config.value is None]
    if unset:
        message = f"Null value not supported for topic configs: {','.join(unset)}"
        raise PartialError(ErrorCode.INVALID_CONFIG, message)
    overrides = {config.name: config.value for config in wanted.configs if config.value is not None}
    try:
        validate_overrides(services.config, overrides)
    except ConfigError as error:
        raise PartialError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return overrides


def _partitions_asked_for(services: Services, wanted: Sequence[CreatableTopic]) -> Work[int]:
    total = 0
    for one in wanted:
        yield
        count = services.config.num_partitions if one.num_partitions == DEFAULT else max(0, one.num_partitions)
        total += len(one.assignments) or count
    return total


def _partition_count(services: Services, wanted: CreatableTopic) -> int:
    """The number of partitions, after the request was validated."""
    if wanted.assignments:
        return _assigned_partition_count(services, wanted)
    replicas = wanted.replication_factor
    if replicas == 0 or replicas < DEFAULT:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise PartialError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if wanted.num_partitions == 0 or wanted.num_partitions < DEFAULT:
        message = "Number of partitions was set to an invalid non-positive value."
        raise PartialError(ErrorCode.INVALID_PARTITIONS, message)
    if replicas == DEFAULT:
        replicas = services.config.default_replication_factor
    if replicas > REPLICAS:
        raise PartialError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} "
            "cannot be reached because only 1 broker(s) are registered "
            "or some brokers have all their log directories cordoned.",
        )
    return services.config.num_partitions if wanted.num_partitions == DEFAULT else wanted.num_partitions


def _assigned_partition_count(services: Services, wanted: CreatableTopic) -> int:
    given = "A manual partition assignment was specified, but"
    if wanted.replication_factor != DEFAULT:
        raise PartialError(ErrorCode.INVALID_REQUEST, f"{given} replication factor was not set to -1.")
    if wanted.num_partitions != DEFAULT:
        raise PartialError(ErrorCode.INVALID_REQUEST, f"{given} numPartitions was not set to -1.")
    seen: set[int] = set()
    for assignment in wanted.assignments:
        index = assignment.partition_index
        if index in seen:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise PartialError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        seen.add(index)
        check_assignment(assignment.broker_ids, services.node_id)
    if seen != set(range(len(seen))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise PartialError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return len(seen)


def _refusal(name: str, refused: PartialError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refused.code, error_message=refused.message)
