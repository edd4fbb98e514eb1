"""The two topics of the gateway: `__holdfast_groups`, the group log, and `__group_ledger`, the event log.

The group log is the only copy of the groups. If it has vanished, or another topic has its name, the gateway stops with
one sentence instead of starting without any group: its members would start over at offsets that nobody committed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from holdfast.broker.groups.event_log import EVENT_LOG_CONFIGS
from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from holdfast.gateway.kafka.errors import KafkaSetupError, KafkaUnreachable
from holdfast.gateway.state.codes import error_name
from holdfast.gateway.state.ports import Cluster
from holdfast.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

GROUPS_TOPIC: Final = "__holdfast_groups"
PARTITIONS: Final = 32
"""Of a group log that has to be created. The partition of a group depends on their number, so it never changes."""

_REPLICAS: Final = 3
_MAX_MESSAGE_BYTES: Final = 8 << 20
"""A group is one record. With thousands of members it is larger than Kafka's default of one megabyte."""
_TOPIC_RESOURCE: Final = 2
_CHECKS: Final = 3
"""A topic counts as missing if Kafka says so this many times: a broker that has just started may not know it yet."""
_PAUSE_S: Final = 1.0
_CREATED_WITHIN_S: Final = 60.0

_GROUPS_CONFIGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup.policy": "compact",
        "max.message.bytes": str(_MAX_MESSAGE_BYTES),
        "unclean.leader.election.enable": "false",
        # The broker's time. With CreateTime, a gateway whose clock is an hour ahead could not store anything.
        "message.timestamp.type": "LogAppendTime",
    }
)


class StateTopicError(KafkaSetupError):
    """The gateway cannot start, or has to stop, because of its topics."""


class StateTopicMissing(StateTopicError):
    """The group log existed once and does not exist now."""


class StateTopicReplaced(StateTopicError):
    """Another topic has the name of the group log."""


class FoundTopic(NamedTuple):
    id: bytes
    partition_count: int
    replicas: int
    """Of the partition that has the fewest."""


class StateTopic:
    def __init__(self, cluster: Cluster, name: str, found: FoundTopic, max_message_bytes: int) -> None:
        self.name: Final = name
        self.id: Final = found.id
        self.partition_count: Final = found.partition_count
        self.max_message_bytes: Final = max_message_bytes
        self._cluster = cluster
        self._checking = asyncio.Lock()
        self._checked_s = -math.inf

    async def check_same_topic(self) -> None:
        """Raises StateTopicMissing or StateTopicReplaced; KafkaUnreachable if Kafka cannot be asked.

        All partitions of the log may ask at once, so an answer counts for a second.
        """
        async with self._checking:
            loop = asyncio.get_running_loop()
            if loop.time() - self._checked_s < _PAUSE_S:
                return
            found = await _find_again(self._cluster, self.name)
            if found is None:
                raise StateTopicMissing(
                    f"the topic {self.name} with the gateway's groups was deleted while the gateway was running; "
                    "the gateway stops, because it cannot store anything"
                )
            if found.id != self.id:
                raise StateTopicReplaced(
                    f"the topic {self.name} with the gateway's groups was deleted and created again while the gateway "
                    "was running; the gateway stops, because the new topic has none of its groups"
                )
            self._checked_s = loop.time()


class StateTopics(NamedTuple):
    groups: StateTopic
    ledger: StateTopic


async def open_state_topics(cluster: Cluster, *, create: bool = False, partitions: int = PARTITIONS) -> StateTopics:
    """Finds the topics, and creates them for a gateway that never ran on this cluster, or if `create` is set.

    The group log is created first. If the gateway dies after that, the next start finds it and creates the other one.
    Raises StateTopicError, KafkaUnreachable or KafkaRefused.
    """
    groups = await _find(cluster, GROUPS_TOPIC)
    ledger = await _find(cluster, LEDGER_TOPIC)
    if groups is None and ledger is not None and not create:
        groups = await _find_again(cluster, GROUPS_TOPIC)
        if groups is None:
            raise StateTopicMissing(
                f"the topic {GROUPS_TOPIC} with the gateway's groups does not exist, although {LEDGER_TOPIC} does, so "
                "a gateway ran on this cluster before; restore it, or start once with --create-state to begin without "
                "any group"
            )
    if groups is None:
        groups = await _create(cluster, GROUPS_TOPIC, partitions, _GROUPS_CONFIGS)
    if ledger is None:
        ledger = await _create(cluster, LEDGER_TOPIC, 1, EVENT_LOG_CONFIGS)
    return StateTopics(
        groups=StateTopic(cluster, GROUPS_TOPIC, groups, _checked(groups, await _configs(cluster, GROUPS_TOPIC))),
        ledger=StateTopic(cluster, LEDGER_TOPIC, ledger, _max_message_bytes(await _configs(cluster, LEDGER_TOPIC))),
    )


# -- lookup ------------------------------------------------------------------------------------------------------------


async def _find_again(cluster: Cluster, name: str) -> FoundTopic | None:
    """As `_find`, but takes more than one answer for the fact that the topic is gone."""
    for attempt in range(_CHECKS):
        if attempt:
            await asyncio.sleep(_PAUSE_S)
        found = await _find(cluster, name)
        if found is not None:
            return found
    return None


async def _find(cluster: Cluster, name: str) -> FoundTopic | None:
    """None if no broker that answers knows the topic. One alone may have started just now, and not know it yet."""
    unreachable: KafkaUnreachable | None = None
    answers = 0
    for node_id in cluster.brokers.node_ids:
        try:
            found = await _find_at(cluster, node_id, name)
        except KafkaUnreachable as error:
            unreachable = error
            continue
        if found is not None:
            return found
        answers += 1
    if not answers:
        raise unreachable or KafkaUnreachable("the cluster has no live broker")
    return None


async def _find_at(cluster: Cluster, node_id: int, name: str) -> FoundTopic | None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    response: MetadataResponse = await cluster.ask(node_id, request)
    for topic in response.topics:
        if topic.name != name:
            continue
        if topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            replicas = min((len(partition.replica_nodes) for partition in topic.partitions), default=0)
            return FoundTopic(topic.topic_id, len(topic.partitions), replicas)
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise StateTopicError(
            f"Kafka answers {error_name(topic.error_code)} to a Metadata request for the topic {name}; "
            "the gateway's user needs the operations Describe, Read and Write on it"
        )
    raise KafkaUnreachable(f"Kafka's answer to a Metadata request does not contain the topic {name}")


# -- creation ----------------------------------------------------------------------------------------------------------


async def _create(cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str]) -> FoundTopic:
    replicas = max(1, min(_REPLICAS, len(cluster.brokers.node_ids)))
    # One replica may be down. With two of them, the remaining one has to do.
    configs = {**configs, "min.insync.replicas": str(max(1, replicas - 1))}
    topic = CreatableTopic(
        name, partitions, replicas, configs=[CreatableTopicConfig(key, value) for key, value in configs.items()]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(_CREATED_WITHIN_S * 1000))
    response: CreateTopicsResponse = await cluster.ask_any(request, timeout_s=_CREATED_WITHIN_S + 5)
    for result in response.topics:
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
            raise StateTopicError(
                f"the topic {name} cannot be created: Kafka answers {error_name(result.error_code)}"
                + (f" ({result.error_message})" if result.error_message else "")
            )
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _CREATED_WITHIN_S
    while loop.time() < deadline:
        found = await _find(cluster, name)
        if found is not None and found.partition_count > 0:
            logger.info("topic %s created with %d partitions and %d replicas", name, found.partition_count, replicas)
            return found
        await asyncio.sleep(_PAUSE_S / 10)
    raise KafkaUnreachable(f"the topic {name} is not there {_CREATED_WITHIN_S:.0f} s after its creation")


# -- configs -----------------------------------------------------------------------------------------------------------


async def _configs(cluster: Cluster, name: str) -> dict[str, str]:
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(_TOPIC_RESOURCE, name, None)])
    for attempt in range(_CHECKS):
        if attempt:
            await asyncio.sleep(_PAUSE_S)
        response: DescribeConfigsResponse = await cluster.ask_any(request)
        (result,) = response.results
        # A topic that was created just now may not be known to every broker.
        if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            break
    if result.error_code != ErrorCode.NONE:
        raise StateTopicError(
            f"the configs of the topic {name} cannot be read: Kafka answers {error_name(result.error_code)}; "
            "the gateway's user needs the operation DescribeConfigs on it"
        )
    return {config.name: config.value for config in result.configs if config.value is not None}


def _checked(found: FoundTopic, configs: Mapping[str, str]) -> int:
    """The limit of the group log's batches, if its configs let it keep every group."""
    policy = configs.get("cleanup.policy", "")
    if policy != "compact":
        raise StateTopicError(
            f"the topic {GROUPS_TOPIC} has cleanup.policy={policy}, which deletes the offsets of groups; "
            "set it to compact"
        )
    if configs.get("unclean.leader.election.enable") == "true":
        logger.warning("topic %s has unclean.leader.election.enable=true: Kafka may lose offsets", GROUPS_TOPIC)
    if found.replicas > 1 and found.replicas <= int(configs.get("min.insync.replicas", "1")):
        logger.warning(
            "topic %s has %d replicas and min.insync.replicas=%s: without any one of them nothing can be stored",
            GROUPS_TOPIC,
            found.replicas,
            configs["min.insync.replicas"],
        )
    return _max_message_bytes(configs)


def _max_message_bytes(configs: Mapping[str, str]) -> int:
    return int(configs.get("max.message.bytes", "1048588"))
