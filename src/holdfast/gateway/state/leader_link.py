"""A connection to the leader of a partition, for its writer alone: Kafka processes the requests on it in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.state.ports import Cluster, Connection
from holdfast.gateway.state.topic import StateTopic


class LeaderLink:
    def __init__(self, cluster: Cluster, topic: StateTopic, partition: int, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called when the connection is lost that `connect` returned last."""
        self._cluster, self._topic, self._partition = cluster, topic, partition
        self._on_lost = on_lost
        self._connection: Connection | None = None

    async def connect(self, *, is_first: bool) -> Connection:
        """The connection to the leader, which may be the one before.

        Raises KafkaUnreachable and KafkaRefused, and StateTopicError if the topic is not the same any more.
        """
        try:
            leader = await self._cluster.leader_of(self._topic.name, self._partition, refresh=not is_first)
        except KafkaUnreachable:
            await self._topic.check_same_topic()
            raise
        if not is_first:
            await self._topic.check_same_topic()
        connection = self._connection
        if connection is None or connection.is_closed or connection.node_id != leader:
            self.close()
            self._connection = connection = await self._cluster.open_connection(leader)
            connection.on_lost(partial(self._lost, connection))
        return connection

    def _lost(self, connection: Connection) -> None:
        if connection is self._connection:
            self._on_lost()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
