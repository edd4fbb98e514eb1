"""The connections to the brokers: one for each that all callers share, and others for long waits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.gateway.brokers import BrokerDirectory
from holdfast.gateway.kafka.connection import KafkaConnection, connect
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.gateway.kafka.shared_tasks import SharedTasks
from holdfast.membership.backoff import Backoff

_BACKOFF_S: Final = (0.05, 1.0)
_JITTER: Final = (0.75, 1.5)
_SHORT_LIFE_S: Final = 1.0
"""A connection that ends sooner counts as a failure, so that a broker that accepts and closes is not asked at once."""

Check = Callable[[KafkaConnection], Awaitable[None]]
"""Whether the right broker answers. Raises KafkaUnreachable or KafkaRefused."""


class ConnectionPool:
    def __init__(self, brokers: BrokerDirectory, settings: KafkaClientSettings, check: Check) -> None:
        self._brokers = brokers
        self._settings = settings
        self._check = check
        self._shared: dict[int, KafkaConnection] = {}
        self._backoffs: dict[int, Backoff] = {}
        self._opening: SharedTasks[int, KafkaConnection] = SharedTasks()
        self._open: set[KafkaConnection] = set()
        """All of them, also those that a caller owns."""
        self._is_closed = False

    def is_connected(self, node_id: int) -> bool:
        return node_id in self._shared

    async def shared(self, node_id: int) -> KafkaConnection:
        """The connection that all callers share. After a loss, it is made again, after a short delay."""
        found = self._shared.get(node_id)
        if found is not None and not found.is_closed:
            return found
        return await self._opening.run(node_id, lambda: self._open_shared(node_id))

    async def open(self, node_id: int) -> KafkaConnection:
        """A separate connection, for long waits. The caller closes it."""
        self._check_open()
        opened = await connect(self._brokers.upstream(node_id), self._settings, node_id=node_id)
        if self._is_closed:
            opened.close()
            self._check_open()
        self._open.add(opened)
        opened.on_lost(lambda: self._open.discard(opened))
        return opened

    def close_moved(self) -> None:
        """Closes shared connections to addresses at which their broker is no longer."""
        for node_id, connection in list(self._shared.items()):
            if node_id not in self._brokers or self._brokers.upstream(node_id) != connection.address:
                connection.close()
        for node_id in [one for one in self._backoffs if one not in self._brokers]:
            del self._backoffs[node_id]

    async def close(self) -> None:
        self._is_closed = True
        await self._opening.close()
        for connection in list(self._open):
            connection.close()

    async def _open_shared(self, node_id: int) -> KafkaConnection:
        self._brokers.upstream(node_id)  # raises for a broker that does not exist, before it gets a backoff
        backoff = self._backoff(node_id)
        loop = asyncio.get_running_loop()
        if backoff.ready_at > loop.time():
            await asyncio.sleep(backoff.ready_at - loop.time())
        try:
            opened = await self.open(node_id)
            try:
                await self._check(opened)
            except BaseException:
                opened.close()
                raise
        except (KafkaUnreachable, KafkaRefused):
            backoff.failed(loop.time())
            raise
        self._shared[node_id] = opened
        began = loop.time()
        opened.on_lost(lambda: self._lost(node_id, opened, began))
        return opened

    def _lost(self, node_id: int, connection: KafkaConnection, began: float) -> None:
        if self._shared.get(node_id) is connection:
            del self._shared[node_id]
        now = asyncio.get_running_loop().time()
        if now - began < _SHORT_LIFE_S:
            self._backoff(node_id).failed(now)
        else:
            self._backoff(node_id).succeeded()

    def _check_open(self) -> None:
        if self._is_closed:
            raise KafkaUnreachable("the gateway's Kafka client is closed")

    def _backoff(self, node_id: int) -> Backoff:
        found = self._backoffs.get(node_id)
        if found is None:
            least_s, most_s = _BACKOFF_S
            found = self._backoffs[node_id] = Backoff(least_s, most_s, lambda: random.uniform(*_JITTER), clamp=True)
        return found
