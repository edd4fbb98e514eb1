"""Requests that describe and change topics. `Admin` has them as methods."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import ConfigError, HoldfastError, TopicError, error_code
from holdfast.client.metadata import INTERNAL_TOPICS, metadata_request, read_metadata
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.types import TopicPartition
from holdfast.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from holdfast.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from holdfast.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.apis.metadata import METADATA, MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api

_BROKER_DEFAULT: Final = -1
_FIRST_WITH_TOPIC_STATES: Final = 6
_TOPIC_RESOURCE: Final = 2
_TOPIC_CONFIG_SOURCE: Final = 1
"""The source of a config that is set on the topic itself, not on the broker."""
_ADVICE: Final = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "it exists already",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user may not do that to the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user may not do that to the cluster",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker does not allow topics to be deleted",
    ErrorCode.REQUEST_TIMED_OUT: "the broker did not manage it in time; it may still come",
}

Results = dict[str, HoldfastError | None]


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int | None = None
    """None for the broker's default."""
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    partitions: int
    replication_factor: int
    internal: bool
    """Whether it is an internal topic."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    number: int
    leader: int | None
    """None while there is no leader."""
    replicas: Sequence[int]
    in_sync: Sequence[int]
    earliest: int | None
    """The first available offset; None while there is no leader."""
    latest: int | None
    """The offset that the next record will have."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: str | None
    """In Kafka's text form; None if the broker is too old to report it (before Kafka 2.8)."""
    internal: bool
    partitions: Sequence[PartitionDescription]
    configs: Mapping[str, str | None]
    """The configs that are set on this topic."""

    @property
    def replication_factor(self) -> int:
        return _replication_factor(self.partitions)


# -- describing --------------------------------------------------------------------------------------------------------


def list_topics(cluster: ClusterClient, deadline: float) -> list[TopicListing]:
    response = _metadata(cluster, None, deadline)
    found = [one for one in response.topics if one.name is not None and not one.error_code]
    return sorted((_listing(one) for one in found), key=lambda one: one.name)


def describe_topics(cluster: ClusterClient, names: Iterable[str], deadline: float) -> list[TopicDescription]:
    """In the order of the names. Raises a TopicError for the first topic that cannot be described."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return []
    response = _metadata(cluster, wanted, deadline)
    metadata = read_metadata(response)
    for name in wanted:
        metadata.topic(name)
    topics = {one.name: one for one in response.topics if one.name is not None}
    led = [(name, one.partition_index) for name in wanted for one in topics[name].partitions if one.leader_id >= 0]
    first = list_offsets(cluster, dict.fromkeys(led, EARLIEST), deadline)
    last = list_offsets(cluster, dict.fromkeys(led, LATEST), deadline)
    configs = _configs(cluster, wanted, deadline)
    return [_description(topics[name], first, last, configs.get(name, {})) for name in wanted]


def _metadata(cluster: ClusterClient, names: Collection[str] | None, deadline: float) -> MetadataResponse:
    # The brokers first, because a broker that has just started lists no topics and returns no error.
    cluster.metadata((), deadline)
    connection = cluster.any(deadline)
    version = connection.version_of(METADATA)
    response: MetadataResponse = connection.ask(metadata_request(names, version), deadline, version)
    return response


def _listing(topic: MetadataResponseTopic) -> TopicListing:
    name = topic.name or ""
    replicas = max((len(one.replica_nodes) for one in topic.partitions), default=0)
    return TopicListing(name, len(topic.partitions), replicas, topic.is_internal or name in INTERNAL_TOPICS)


def _description(
    topic: MetadataResponseTopic,
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
    configs: Mapping[str, str | None],
) -> TopicDescription:
    name = topic.name or ""

    def partition(one: MetadataResponsePartition) -> PartitionDescription:
        where = name, one.partition_index
        leader = one.leader_id if one.leader_id >= 0 else None
        return PartitionDescription(
            one.partition_index, leader, one.replica_nodes, one.isr_nodes, first.get(where), last.get(where)
        )

    partitions = [partition(one) for one in sorted(topic.partitions, key=lambda one: one.partition_index)]
    has_id = any(topic.topic_id)
    topic_id = base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=") if has_id else None
    return TopicDescription(name, topic_id, topic.is_internal or name in INTERNAL_TOPICS, partitions, configs)


def _replication_factor(partitions: Iterable[PartitionDescription]) -> int:
    return max((len(one.replicas) for one in partitions), default=0)


def _configs(cluster: ClusterClient, names: Iterable[str], deadline: float) -> dict[str, dict[str, str | None]]:
    """The configs that are set on each topic; empty for topics whose configs this user may not describe."""
    request = DescribeConfigsRequest([DescribeConfigsResource(_TOPIC_RESOURCE, name, None) for name in names])
    response = cluster.ask(request, deadline)
    return {
        one.resource_name: {
            config.name: None if config.is_sensitive else config.value
            for config in one.configs
            if config.config_source == _TOPIC_CONFIG_SOURCE
        }
        for one in response.results
        if not one.error_code
    }


# -- changing ----------------------------------------------------------------------------------------------------------


def create_topics(
    cluster: ClusterClient, topics: Iterable[NewTopic], deadline: float, *, validate_only: bool
) -> Results:
    wanted = [
        CreatableTopic(
            one.name,
            _BROKER_DEFAULT if one.partitions is None else _at_least_one("partitions", one.partitions),
            _BROKER_DEFAULT
            if one.replication_factor is None
            else _at_least_one("the replication factor", one.replication_factor),
            configs=[CreatableTopicConfig(name, value) for name, value in one.configs.items()],
        )
        for one in topics
    ]

    def build(_version: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(wanted, _remaining_ms(cluster, deadline), validate_only)

    names = [one.name for one in wanted]
    return _change_topics(cluster, CREATE_TOPICS, names, build, lambda answer: answer.topics, deadline)


def delete_topics(cluster: ClusterClient, names: Iterable[str], deadline: float) -> Results:
    wanted = list(dict.fromkeys(names))

    def build(version: int) -> DeleteTopicsRequest:
        if version < _FIRST_WITH_TOPIC_STATES:
            return DeleteTopicsRequest(topic_names=wanted, timeout_ms=_remaining_ms(cluster, deadline))
        return DeleteTopicsRequest(
            [DeleteTopicState(name) for name in wanted], timeout_ms=_remaining_ms(cluster, deadline)
        )

    return _change_topics(cluster, DELETE_TOPICS, wanted, build, lambda answer: answer.responses, deadline)


def add_partitions(cluster: ClusterClient, totals: Mapping[str, int], deadline: float) -> Results:
    wanted = [CreatePartitionsTopic(name, _at_least_one("partitions", total), None) for name, total in totals.items()]

    def build(_version: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(wanted, _remaining_ms(cluster, deadline))

    return _change_topics(cluster, CREATE_PARTITIONS, list(totals), build, lambda answer: answer.results, deadline)


def _change_topics(
    cluster: ClusterClient,
    api: Api,
    names: Sequence[str],
    build: Callable[[int], Any],
    results_of: Callable[[Any], Sequence[Any]],
    deadline: float,
) -> Results:
    """The result for each topic, in the order of the names. Only the controller changes topics; after an election the
    request goes to the new one. A lost request is not repeated, because it may have been executed."""
    if not names:
        return {}
    while True:
        controller = cluster.metadata((), deadline).controller_id
        connection = cluster.node(controller, deadline) if controller >= 0 else cluster.any(deadline)
        version = connection.version_of(api)
        results = results_of(connection.ask(build(version), deadline, version))
        elsewhere = any(one.error_code == ErrorCode.NOT_CONTROLLER for one in results)
        if not elsewhere or not cluster.pause_before_retry(deadline):
            found = {one.name: _error(one.name, one.error_code, getattr(one, "error_message", None)) for one in results}
            return {name: found.get(name, TopicError(f"topic {name!r}: the broker left it out")) for name in names}


def _error(name: str, code: int, message: str | None) -> HoldfastError | None:
    if not code:
        return None
    known = error_code(code)
    why = _ADVICE.get(known) or message or "see the log of the broker"
    return TopicError(f"topic {name!r}: {known.name}: {why}", code=known)


def _at_least_one(what: str, number: int) -> int:
    if number < 1:
        raise ConfigError(f"{what} cannot be {number}; at least one is needed")
    return number


def _remaining_ms(cluster: ClusterClient, deadline: float) -> int:
    return max(1, int((deadline - cluster.clock.now()) * 1000))
