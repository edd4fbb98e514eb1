"""Topics as an operator sees and changes them. `Admin` has these as its methods; here is what they ask the brokers."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client.errors import ConfigError, HoldfastError, TopicError, error_code
from holdfast.client.metadata import INTERNAL_TOPICS, metadata_request, read_metadata
from holdfast.client.network import Network
from holdfast.client.offsets import EARLIEST, LATEST, TopicPartition, list_offsets
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

_THE_BROKERS_DEFAULT: Final = -1
_FIRST_WITH_TOPIC_STATES: Final = 6
_TOPIC_RESOURCE: Final = 2
_SET_ON_THE_TOPIC: Final = 1
"""The source of a config that stands on the topic itself, not on the broker."""
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
    """None: as many as the broker gives by default."""
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    partitions: int
    replication_factor: int
    internal: bool
    """Whether it belongs to the broker itself."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    number: int
    leader: int | None
    """None while no broker leads it."""
    replicas: Sequence[int]
    in_sync: Sequence[int]
    earliest: int | None
    """The first offset that is there; None while no broker leads the partition."""
    latest: int | None
    """The offset that the next record will have."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: str | None
    """As Kafka writes it; None where the broker is too old to tell (before Kafka 2.8)."""
    internal: bool
    partitions: Sequence[PartitionDescription]
    configs: Mapping[str, str | None]
    """Those that were set on this topic."""

    @property
    def replication_factor(self) -> int:
        return _replication_factor(self.partitions)


# -- looking -----------------------------------------------------------------------------------------------------------


def list_topics(network: Network, deadline: float) -> list[TopicListing]:
    response = _metadata(network, None, deadline)
    found = [one for one in response.topics if one.name is not None and not one.error_code]
    return sorted((_listing(one) for one in found), key=lambda one: one.name)


def describe_topics(network: Network, names: Iterable[str], deadline: float) -> list[TopicDescription]:
    """In the order of the names. Raises a TopicError for the first that cannot be had."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return []
    response = _metadata(network, wanted, deadline)
    metadata = read_metadata(response)
    for name in wanted:
        metadata.topic(name)
    topics = {one.name: one for one in response.topics if one.name is not None}
    led = [(name, one.partition_index) for name in wanted for one in topics[name].partitions if one.leader_id >= 0]
    first = list_offsets(network, dict.fromkeys(led, EARLIEST), deadline)
    last = list_offsets(network, dict.fromkeys(led, LATEST), deadline)
    configs = _configs(network, wanted, deadline)
    return [_description(topics[name], first, last, configs.get(name, {})) for name in wanted]


def _metadata(network: Network, names: Collection[str] | None, deadline: float) -> MetadataResponse:
    # Asked for brokers first: whoever has just started names no topic, and does not say that it cannot tell.
    network.metadata((), deadline)
    connection = network.any(deadline)
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


def _configs(network: Network, names: Iterable[str], deadline: float) -> dict[str, dict[str, str | None]]:
    """What is set on each topic; nothing of those whose configs this user may not see."""
    request = DescribeConfigsRequest([DescribeConfigsResource(_TOPIC_RESOURCE, name, None) for name in names])
    response = network.ask(request, deadline)
    return {
        one.resource_name: {
            config.name: None if config.is_sensitive else config.value
            for config in one.configs
            if config.config_source == _SET_ON_THE_TOPIC
        }
        for one in response.results
        if not one.error_code
    }


# -- changing ----------------------------------------------------------------------------------------------------------


def create_topics(network: Network, topics: Iterable[NewTopic], deadline: float, *, validate_only: bool) -> Results:
    wanted = [
        CreatableTopic(
            one.name,
            _THE_BROKERS_DEFAULT if one.partitions is None else _at_least_one("partitions", one.partitions),
            _THE_BROKERS_DEFAULT
            if one.replication_factor is None
            else _at_least_one("the replication factor", one.replication_factor),
            configs=[CreatableTopicConfig(name, value) for name, value in one.configs.items()],
        )
        for one in topics
    ]

    def build(_version: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(wanted, _left_ms(deadline), validate_only)

    names = [one.name for one in wanted]
    return _changed(network, CREATE_TOPICS, names, build, lambda answer: answer.topics, deadline)


def delete_topics(network: Network, names: Iterable[str], deadline: float) -> Results:
    wanted = list(dict.fromkeys(names))

    def build(version: int) -> DeleteTopicsRequest:
        if version < _FIRST_WITH_TOPIC_STATES:
            return DeleteTopicsRequest(topic_names=wanted, timeout_ms=_left_ms(deadline))
        return DeleteTopicsRequest([DeleteTopicState(name) for name in wanted], timeout_ms=_left_ms(deadline))

    return _changed(network, DELETE_TOPICS, wanted, build, lambda answer: answer.responses, deadline)


def add_partitions(network: Network, totals: Mapping[str, int], deadline: float) -> Results:
    wanted = [CreatePartitionsTopic(name, _at_least_one("partitions", total), None) for name, total in totals.items()]

    def build(_version: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(wanted, _left_ms(deadline))

    return _changed(network, CREATE_PARTITIONS, list(totals), build, lambda answer: answer.results, deadline)


def _changed(
    network: Network,
    api: Api,
    names: Sequence[str],
    build: Callable[[int], Any],
    results_of: Callable[[Any], Sequence[Any]],
    deadline: float,
) -> Results:
    """What became of each topic, in the order of the names. Only the controller changes topics; after an election it
    is another one. A request that was lost is not sent again: it may have been carried out."""
    if not names:
        return {}
    while True:
        controller = network.metadata((), deadline).controller_id
        connection = network.node(controller, deadline) if controller >= 0 else network.any(deadline)
        version = connection.version_of(api)
        results = results_of(connection.ask(build(version), deadline, version))
        elsewhere = any(one.error_code == ErrorCode.NOT_CONTROLLER for one in results)
        if not elsewhere or time.monotonic() + network.settings.retry_backoff_s >= deadline:
            told = {one.name: _error(one.name, one.error_code, getattr(one, "error_message", None)) for one in results}
            return {name: told.get(name, TopicError(f"topic {name!r}: the broker left it out")) for name in names}
        network.pause(network.settings.retry_backoff_s)


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


def _left_ms(deadline: float) -> int:
    return max(1, int((deadline - time.monotonic()) * 1000))
