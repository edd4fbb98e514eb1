"""The leaders of partitions, as of the last Metadata of their topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from holdfast.client.errors import RETRIABLE_CODES, error_code
from holdfast.gateway.brokers import BrokerDirectory
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka.shared_tasks import SharedTasks
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_MAX_TOPICS: Final = 1000
"""The gateway itself reads and writes only its own topics."""

AskAny = Callable[[Any], Awaitable[Any]]
"""The response of any broker. Any: each request has its own type of response."""


class PartitionLeaders:
    def __init__(self, ask_any: AskAny, brokers: BrokerDirectory) -> None:
        self._ask_any = ask_any
        self._brokers = brokers
        self._leaders: dict[str, dict[int, int]] = {}
        self._asking: SharedTasks[str, dict[int, int]] = SharedTasks()

    async def leader_of(self, topic: str, partition: int, *, refresh: bool) -> int:
        """Raises KafkaUnreachable while there is none, and KafkaRefused if the gateway may not see the topic."""
        if not refresh:
            known = self._leaders.get(topic, {}).get(partition, -1)
            if known in self._brokers:
                return known
        leaders = await self._asking.run(topic, lambda: self._ask(topic))
        leader = leaders.get(partition, -1)
        if leader < 0:
            raise KafkaUnreachable(f"partition {partition} of topic {topic!r} has no leader")
        return leader

    async def close(self) -> None:
        await self._asking.close()

    async def _ask(self, topic: str) -> dict[int, int]:
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response: MetadataResponse = await self._ask_any(request)
        self._leaders.pop(topic, None)
        found = next((one for one in response.topics if one.name == topic), None)
        number = response.error_code or (found.error_code if found is not None else 0)
        if number:
            code = error_code(number)
            text = f"Metadata of topic {topic!r} is answered with {code.name}"
            raise KafkaUnreachable(text) if code in RETRIABLE_CODES else KafkaRefused(text, code)
        if found is None:
            raise KafkaUnreachable(f"Metadata of topic {topic!r} is answered without the topic")
        leaders = {one.partition_index: one.leader_id for one in found.partitions}
        if len(self._leaders) >= _MAX_TOPICS:
            del self._leaders[next(iter(self._leaders))]
        self._leaders[topic] = leaders
        return leaders
