"""The state of a gateway without the rest of it: the cluster's client, the group log, and an owner that replays."""

from __future__ import annotations

from holdfast.client.addresses import Address
from holdfast.gateway.brokers import GatewayAddresses, parse_bootstrap
from holdfast.gateway.kafka.cluster import KafkaCluster
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.gateway.state.append_queue import WriterLimits
from holdfast.gateway.state.kafka_group_log import KafkaGroupLog
from holdfast.gateway.state.topic import StateTopics, open_state_topics
from holdfast.wire.group_records import GroupRecord, partition_for
from tests.support.replaying_owner import ReplayingOwner

NOW_MS = 1_700_000_000_000


async def connected(bootstrap: str) -> KafkaCluster:
    advertised = GatewayAddresses(Address("gateway.example", 9092))
    cluster = KafkaCluster(parse_bootstrap(bootstrap), KafkaClientSettings(), advertised)
    await cluster.start()
    return cluster


class LogGateway:
    def __init__(self, cluster: KafkaCluster, topics: StateTopics, limits: WriterLimits) -> None:
        self.cluster = cluster
        self.topics = topics
        self.owner = ReplayingOwner()
        self.failures: list[str] = []
        self.fenced: list[int] = []
        self.log = self.owner.log = KafkaGroupLog(
            cluster,
            topics.groups,
            gateway_id="gateway",
            on_failed=self.failures.append,
            on_fenced=self.fenced.append,
            limits=limits,
        )
        self.log.start(self.owner)

    @classmethod
    async def started(cls, bootstrap: str, limits: WriterLimits | None = None) -> LogGateway:
        cluster = await connected(bootstrap)
        return cls(cluster, await open_state_topics(cluster), limits or WriterLimits())

    async def append(self, *records: GroupRecord) -> None:
        """All of one group."""
        (group,) = {getattr(key, "group", "") for key, _ in records}
        await self.log.append(group, records, NOW_MS)

    def replayed(self, group: str) -> list[GroupRecord]:
        return self.owner.records[partition_for(group, self.log.partition_count)]

    async def close(self) -> None:
        await self.log.close()
        await self.cluster.close()
