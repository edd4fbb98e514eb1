from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.gateway import join_connections
from holdfast.gateway.join_connections import JoinConnections
from holdfast.gateway.kafka.errors import KafkaUnreachable
from tests.unit.gateway.fake_upstream import FakeUpstream


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


def test_a_connection_is_used_again() -> None:
    async def story() -> None:
        kafka = FakeUpstream()
        connections = JoinConnections(kafka.open_connection, 2)
        first = await connections.acquire(1)
        connections.release(first, is_reusable=True)
        second = await connections.acquire(1)
        assert second.connection is first.connection
        connections.release(second, is_reusable=False)
        assert second.connection.is_closed
        assert connections.count == kafka.open_connections == 0

    run(story())


def test_a_connection_that_the_broker_closed_is_not_used_again() -> None:
    async def story() -> None:
        kafka = FakeUpstream()
        connections = JoinConnections(kafka.open_connection, 2)
        first = await connections.acquire(1)
        connections.release(first, is_reusable=True)
        first.connection.close()
        second = await connections.acquire(1)
        assert second.connection is not first.connection
        assert connections.count == 1

    run(story())


def test_an_idle_connection_makes_room_for_one_to_another_broker() -> None:
    async def story() -> None:
        kafka = FakeUpstream()
        connections = JoinConnections(kafka.open_connection, 1)
        first = await connections.acquire(1)
        connections.release(first, is_reusable=True)
        second = await connections.acquire(2)
        assert first.connection.is_closed
        assert second.node_id == 2
        assert kafka.most_connections == 1

    run(story())


def test_a_caller_waits_until_a_connection_is_released_or_revocable() -> None:
    async def story() -> None:
        kafka = FakeUpstream()
        connections = JoinConnections(kafka.open_connection, 1)
        first = await connections.acquire(1)
        waiting = [asyncio.create_task(connections.acquire(1)) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert not any(one.done() for one in waiting)

        waiting[0].cancel()
        connections.make_revocable(first)
        second = await waiting[1]
        assert first.is_revoked
        assert first.connection.is_closed
        connections.release(first, is_reusable=False)  # its user sees it later

        connections.release(second, is_reusable=True)
        third = await waiting[2]
        assert third.connection is second.connection
        assert connections.count == kafka.most_connections == 1

    run(story())


def test_a_waiter_that_is_cancelled_after_its_turn_came_passes_it_on() -> None:
    async def story() -> None:
        kafka = FakeUpstream()
        connections = JoinConnections(kafka.open_connection, 1)
        first = await connections.acquire(1)
        cancelled, other = (asyncio.create_task(connections.acquire(1)) for _ in range(2))
        await asyncio.sleep(0.01)
        connections.release(first, is_reusable=True)
        cancelled.cancel()
        await other

    run(story())


def test_a_failure_to_connect_frees_the_place() -> None:
    async def story() -> None:
        kafka = FakeUpstream(unreachable={1})
        connections = JoinConnections(kafka.open_connection, 1)
        waiting = [asyncio.create_task(connections.acquire(1)) for _ in range(3)]
        for one in waiting:
            with pytest.raises(KafkaUnreachable):
                await one
        assert connections.count == 0
        await connections.acquire(2)

    run(story())


def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_connections, "_IDLE_S", 0.01)

    async def story() -> None:
        kafka = FakeUpstream()
        connections = JoinConnections(kafka.open_connection, 2)
        leases = [await connections.acquire(1), await connections.acquire(1)]
        for lease in leases:
            connections.release(lease, is_reusable=True)
        await asyncio.sleep(0.1)
        assert connections.count == kafka.open_connections == 0

    run(story())


def test_after_the_end_no_connection_is_kept() -> None:
    async def story() -> None:
        kafka = FakeUpstream()
        connections = JoinConnections(kafka.open_connection, 2)
        idle, used = await connections.acquire(1), await connections.acquire(1)
        connections.release(idle, is_reusable=True)
        connections.close()
        connections.release(used, is_reusable=True)
        assert kafka.open_connections == 0

    run(story())
