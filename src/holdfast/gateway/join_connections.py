"""A few connections on which the gateway joins groups in Kafka.

Kafka answers the first JoinGroup of a group only after `group.initial.rebalance.delay.ms`, and nothing else on the same
connection before. A thousand new groups would need a thousand connections, or an hour. But the answer can also be had
later: a static member that joins a second time, after the delay, is answered at once (KIP-345). Therefore, as soon as
Kafka has the member, its connection may be taken away and closed, if another group needs one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.gateway.upstream import Connection

_IDLE_S: Final = 30.0
"""Connections that were not used for this long are closed."""


class Lease:
    """A connection for one join."""

    def __init__(self, connection: Connection, node_id: int) -> None:
        self.connection: Final = connection
        self.node_id: Final = node_id
        self.is_revoked = False
        """The connection was closed because another join needed it."""


class JoinConnections:
    def __init__(self, open_connection: Callable[[int], Awaitable[Connection]], limit: int) -> None:
        self._open_connection = open_connection
        self._limit = limit
        self._count = 0
        self._idle: dict[int, list[Connection]] = {}
        self._revocable: dict[Lease, None] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def acquire(self, node_id: int) -> Lease:
        """A connection to this broker. Waits if all are in use, and none can be revoked.

        Raises KafkaUnreachable or KafkaRefused if the broker cannot be reached.
        """
        while True:
            if (idle := self._take_idle(node_id)) is not None:
                return Lease(idle, node_id)
            if self._count < self._limit or self._make_room():
                return await self._open(node_id)
            free = asyncio.get_running_loop().create_future()
            self._waiting.append(free)
            try:
                await free
            except asyncio.CancelledError:
                if free.done() and not free.cancelled():
                    self._wake_next()  # it was woken, and does not use its turn
                raise

    def release(self, lease: Lease, *, is_reusable: bool) -> None:
        """`is_reusable`: no request on the connection is unanswered."""
        self._revocable.pop(lease, None)
        if lease.is_revoked:
            return
        if is_reusable and not lease.connection.is_closed and not self._is_closed:
            self._idle.setdefault(lease.node_id, []).append(lease.connection)
            self._close_idle_later()
        else:
            lease.connection.close()
            self._count -= 1
        self._wake_next()

    def make_revocable(self, lease: Lease) -> None:
        """From now on, the answer on this connection is not needed any more."""
        self._revocable[lease] = None
        self._wake_next()

    def close(self) -> None:
        """The connections that are in use are closed when they are released."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._close_idle()

    @property
    def count(self) -> int:
        """The number of open connections."""
        return self._count

    # -- room ----------------------------------------------------------------------------------------------------------

    def _take_idle(self, node_id: int) -> Connection | None:
        idle = self._idle.get(node_id, [])
        while idle:
            connection = idle.pop()
            if not connection.is_closed:
                return connection
            self._count -= 1
        return None

    def _make_room(self) -> bool:
        """Closes a connection to another broker that nobody uses, or the one that has waited longest for its answer."""
        for connections in self._idle.values():
            if connections:
                connections.pop().close()
                self._count -= 1
                return True
        lease = next(iter(self._revocable), None)
        if lease is None:
            return False
        del self._revocable[lease]
        lease.is_revoked = True
        self._count -= 1
        lease.connection.close()
        return True

    async def _open(self, node_id: int) -> Lease:
        self._count += 1
        try:
            return Lease(await self._open_connection(node_id), node_id)
        except BaseException:
            self._count -= 1
            self._wake_next()
            raise

    def _wake_next(self) -> None:
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return

    # -- idle connections ----------------------------------------------------------------------------------------------

    def _close_idle_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        self._timer = None
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
                self._count -= 1
        self._idle.clear()
