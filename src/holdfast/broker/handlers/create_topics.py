"""CreateTopics: new topics, or with `validate_only` only whether they could be created."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.broker.config_entries import topic_entries
from holdfast.broker.config_keys import ConfigError
from holdfast.broker.config_resources import refuse_many_configs
from holdfast.broker.dispatch import Refused, RequestContext, handles
from holdfast.broker.handlers._common import check_assignment, refuse_the_journal
from holdfast.broker.slices import Work, counted
from holdfast.broker.topic_config import validate_overrides
from holdfast.broker.topics import NewTopic, Topics, invalid_name
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

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

DEFAULT: Final = -1
REPLICAS: Final = 1
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""Kafka's limit, too."""
CLUSTER_METADATA: Final = "__cluster_metadata"
"""Kafka's controllers keep their log under this name, so no client can have it as a topic."""


@handles(CREATE_TOPICS)
async def create_topics(
    broker: Broker,
    request: CreateTopicsRequest,
    context: RequestContext,  # noqa: ARG001
) -> CreateTopicsResponse:
    times = await broker.slices.finish(counted(wanted.name for wanted in request.topics))
    duplicates = [name for name, count in times.items() if count > 1]
    wanted = [
        one async for one in broker.slices.over(request.topics) if times[one.name] == 1 and one.name != CLUSTER_METADATA
    ]
    results = await broker.changes.to_the_end(_create_all(broker, wanted, validate_only=request.validate_only))
    results += [_refusal(name, Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")) for name in duplicates]
    if times[CLUSTER_METADATA] == 1:
        message = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
        results.append(_refusal(CLUSTER_METADATA, Refused(ErrorCode.INVALID_REQUEST, message)))
    return CreateTopicsResponse(topics=results)


async def _create_all(
    broker: Broker, wanted: Sequence[CreatableTopic], *, validate_only: bool
) -> list[CreatableTopicResult]:
    """Those that can be created are, with one change to the disk for all of them."""
    too_many = await broker.slices.finish(_partitions_asked_for(broker, wanted)) > MAX_PARTITIONS_PER_REQUEST
    checked: dict[str, NewTopic | Refused] = {}
    unified: dict[str, str] = {}
    async for one in broker.slices.over(wanted):
        try:
            if too_many:
                message = "Excessively large number of partitions per request."
                raise Refused(ErrorCode.POLICY_VIOLATION, message)
            checked[one.name] = _checked(broker, one, unified)
        except Refused as refused:
            checked[one.name] = refused
        await asyncio.sleep(0)
    new = [found async for found in broker.slices.over(checked.values()) if isinstance(found, NewTopic)]
    ids: dict[str, bytes | Refused] = {}
    if validate_only:
        ids = {one.name: uuid.uuid4().bytes async for one in broker.slices.over(new)}
    else:
        ids = await _create(broker, new)
    results: list[CreatableTopicResult] = []
    async for name, found in broker.slices.over(checked.items()):
        outcome = ids[name] if isinstance(found, NewTopic) else found
        if isinstance(found, NewTopic) and isinstance(outcome, bytes):
            results.append(_result(broker, found, outcome))
        elif isinstance(outcome, Refused):
            results.append(_refusal(name, outcome))
        await asyncio.sleep(0)
    return results


async def create_topic(broker: Broker, wanted: CreatableTopic) -> None:
    """Creates one topic; raises `Refused` if it cannot be."""
    (outcome,) = (await _create(broker, [_checked(broker, wanted, {})])).values()
    if isinstance(outcome, Refused):
        raise outcome


def _checked(broker: Broker, wanted: CreatableTopic, unified: dict[str, str]) -> NewTopic:
    """What can be created; `unified` has the names that the request asked for before, as they must not collide."""
    name = wanted.name
    if broker.topics.get(name) is not None:
        raise _exists(name)
    _check_name(broker.topics, name, unified)
    overrides = _overrides(broker, wanted)
    partition_count = _partition_count(broker, wanted)
    unified[name.replace(".", "_")] = name
    return NewTopic(name, partition_count, overrides)


async def _create(broker: Broker, new: Sequence[NewTopic]) -> dict[str, bytes | Refused]:
    """The id of each topic, or why there is none."""
    try:
        topics = await broker.topics.create_all(new)
    except LogError as error:
        logger.error("topic %s cannot be created: %s", ",".join(one.name for one in new[:10]), error)
        return {one.name: Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) for one in new}
    return {one.name: _exists(one.name) if topic is None else topic.id for one, topic in zip(new, topics, strict=True)}


def _exists(name: str) -> Refused:
    return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _result(broker: Broker, new: NewTopic, topic_id: bytes) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=new.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=new.partition_count,
        replication_factor=REPLICAS,
        configs=[
            CreatableTopicResultConfig(entry.name, entry.value, entry.read_only, entry.source, entry.sensitive)
            for entry in topic_entries(broker.config, new.overrides)
        ],
    )


def _check_name(topics: Topics, name: str, asked_before: Mapping[str, str]) -> None:
    refuse_the_journal(name, "Creation")
    reason = invalid_name(name)
    if reason is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    # Kafka keeps apart only what its metrics can keep apart, and there a dot is an underscore.
    if "." in name or "_" in name:
        unified = name.replace(".", "_")
        existing = (topic.name for topic in topics if topic.name.replace(".", "_") == unified)
        other = next(existing, asked_before.get(unified))
        if other is not None:
            message = f"Topic '{name}' collides with existing topic: {other}"
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _overrides(broker: Broker, wanted: CreatableTopic) -> dict[str, str]:
    refuse_many_configs(wanted.configs)
    unset = [config.name for config in wanted.configs if config.value is None]
    if unset:
        message = f"Null value not supported for topic configs: {','.join(unset)}"
        raise Refused(ErrorCode.INVALID_CONFIG, message)
    overrides = {config.name: config.value for config in wanted.configs if config.value is not None}
    try:
        validate_overrides(broker.config, overrides)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    return overrides


def _partitions_asked_for(broker: Broker, wanted: Sequence[CreatableTopic]) -> Work[int]:
    total = 0
    for one in wanted:
        yield
        count = broker.config.num_partitions if one.num_partitions == DEFAULT else max(0, one.num_partitions)
        total += len(one.assignments) or count
    return total


def _partition_count(broker: Broker, wanted: CreatableTopic) -> int:
    """How many partitions the topic shall have, once it is clear that they can be what was asked for."""
    if wanted.assignments:
        return _assigned_partition_count(broker, wanted)
    replicas = wanted.replication_factor
    if replicas == 0 or replicas < DEFAULT:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if wanted.num_partitions == 0 or wanted.num_partitions < DEFAULT:
        message = "Number of partitions was set to an invalid non-positive value."
        raise Refused(ErrorCode.INVALID_PARTITIONS, message)
    if replicas == DEFAULT:
        replicas = broker.config.default_replication_factor
    if replicas > REPLICAS:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} "
            "cannot be reached because only 1 broker(s) are registered "
            "or some brokers have all their log directories cordoned.",
        )
    return broker.config.num_partitions if wanted.num_partitions == DEFAULT else wanted.num_partitions


def _assigned_partition_count(broker: Broker, wanted: CreatableTopic) -> int:
    given = "A manual partition assignment was specified, but"
    if wanted.replication_factor != DEFAULT:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{given} replication factor was not set to -1.")
    if wanted.num_partitions != DEFAULT:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{given} numPartitions was not set to -1.")
    seen: set[int] = set()
    for assignment in wanted.assignments:
        index = assignment.partition_index
        if index in seen:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        seen.add(index)
        check_assignment(assignment.broker_ids, broker.node_id)
    if seen != set(range(len(seen))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return len(seen)


def _refusal(name: str, refused: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refused.code, error_message=refused.message)
