"""The content of a Metadata response: brokers, and topics with their partitions. No I/O; `cluster_client` fetches
it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.assignors.interface import Cluster
from holdfast.client.addresses import Address
from holdfast.client.errors import ConfigError, TopicError, error_code
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from holdfast.wire.error_codes import ErrorCode

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's internal topics. The oldest version has no flag for them."""

_FIRST_NULL_FOR_ALL: Final = 1
_FIRST_WITH_AUTO_CREATION_FLAG: Final = 4
_ADVICE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist: create it, or see whether it was deleted or misspelt",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user may not see it: it needs the right to describe it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "no topic can have this name",
    ErrorCode.LEADER_NOT_AVAILABLE: "it has no leader yet: try again in a moment",
}


@dataclass(frozen=True, slots=True)
class Node:
    """One broker with its advertised address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    """The number of partitions."""
    internal: bool = False
    racks: tuple[frozenset[str], ...] = ()
    """The racks of each partition's replicas; empty if no rack is known."""
    leaders: tuple[int, ...] = ()
    """The leader of each partition; -1 if there is none."""
    leader_epochs: tuple[int, ...] = ()
    """The leader epoch of each partition (KIP-320); -1 if unknown."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The cluster as one broker described it."""

    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    errors: Mapping[str, ErrorCode] = field(default_factory=dict)
    """The requested topics that are unavailable, with the reason."""
    cluster_id: str | None = None
    controller_id: int = -1

    def topic(self, name: str) -> Topic:
        """The topic. Raises a TopicError with the reason if it is unavailable."""
        found = self.topics.get(name)
        if found is None:
            code = self.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise TopicError(
                f"topic {name!r} ({code.name}): {_ADVICE.get(code, 'see the log of the broker')}", code=code
            )
        return found

    def matching(self, pattern: re.Pattern[str]) -> frozenset[str]:
        """The names that a pattern matches. A pattern never matches internal topics."""
        return frozenset(name for name, topic in self.topics.items() if not topic.internal and pattern.match(name))

    def cluster(self, names: Collection[str] | None = None) -> Cluster:
        """These topics, or all, in the form for assignors. Topics that do not exist are omitted."""
        wanted = self.topics.keys() if names is None else names
        found = [self.topics[name] for name in wanted if name in self.topics]
        return Cluster(
            partitions={topic.name: topic.partitions for topic in found},
            racks={topic.name: topic.racks for topic in found if topic.racks},
        )


def topic_pattern(text: str) -> re.Pattern[str]:
    """The pattern of a subscription that begins with "^". It must match at the start of a name, but not up to its
    end."""
    try:
        return re.compile(text)
    except re.error as failure:
        raise ConfigError(f"subscription {text!r} is not a regular expression: {failure}") from failure


def metadata_request(topics: Iterable[str] | None, version: int, *, may_create: bool = False) -> MetadataRequest:
    """The request for these topics, or all of them. Before v4, it may create a topic whatever `may_create` is."""
    wanted: list[MetadataRequestTopic] | None = None
    if topics is not None:
        wanted = [MetadataRequestTopic(name=name) for name in dict.fromkeys(topics)]
    elif version < _FIRST_NULL_FOR_ALL:
        wanted = []
    return MetadataRequest(wanted, allow_auto_topic_creation=may_create or version < _FIRST_WITH_AUTO_CREATION_FLAG)


def read_metadata(response: MetadataResponse) -> Metadata:
    nodes = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}
    topics = {}
    errors = {}
    for one in response.topics:
        if one.name is None:  # only in a response for topic ids
            continue
        if one.error_code:
            errors[one.name] = error_code(one.error_code)
        else:
            internal = one.is_internal or one.name in INTERNAL_TOPICS
            topics[one.name] = Topic(
                one.name, len(one.partitions), internal, _racks(one, nodes), _leaders(one), _leader_epochs(one)
            )
    return Metadata(nodes, topics, errors, response.cluster_id, response.controller_id)


def _leaders(topic: MetadataResponseTopic) -> tuple[int, ...]:
    return tuple(one.leader_id for one in sorted(topic.partitions, key=lambda one: one.partition_index))


def _leader_epochs(topic: MetadataResponseTopic) -> tuple[int, ...]:
    return tuple(one.leader_epoch for one in sorted(topic.partitions, key=lambda one: one.partition_index))


def _racks(topic: MetadataResponseTopic, nodes: Mapping[int, Node]) -> tuple[frozenset[str], ...]:
    """A replica whose broker is down has no rack: metadata names only live brokers."""
    found = []
    for partition in sorted(topic.partitions, key=lambda one: one.partition_index):
        racks = (nodes[node_id].rack for node_id in partition.replica_nodes if node_id in nodes)
        found.append(frozenset(rack for rack in racks if rack))
    return tuple(found) if any(found) else ()
