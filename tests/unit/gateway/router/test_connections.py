"""The limits of connections, and how the router stops."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from holdfast.client.addresses import Address
from holdfast.gateway.router.router import Router
from holdfast.gateway.router.settings import RouterSettings
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import (
    FORWARDED,
    HOST,
    LOCAL,
    FakeRequests,
    Peer,
    correlation_id_of,
    gateway,
    request,
    response,
    until,
)


def test_more_connections_than_the_limit_are_closed_at_once(run: Run) -> None:
    async def main() -> None:
        async with gateway(max_connections=2) as running:
            admitted = [await running.connect() for _ in range(2)]
            for client in admitted:
                await client.send(request(LOCAL, 1))
                assert (await client.reply())[0] == 1
            refused = await running.connect()
            assert await refused.ended() == b""
            admitted[0].close()
            await until(lambda: running.router.connection_count == 1, "not closed")
            another = await running.connect()
            await another.send(request(LOCAL, 2))
            assert (await another.reply())[0] == 2
            assert len(running.requests.closed_clients) == 1

    run(main())


def test_idle_connections_are_closed_and_waiting_ones_are_not(run: Run) -> None:
    async def main() -> None:
        requests = FakeRequests()
        go_on = asyncio.Event()

        async def park(frame: bytes) -> bytes:
            await go_on.wait()
            return response(correlation_id_of(frame))

        requests.answer_with = lambda frame, _: park(frame)

        async def kafka(peer: Peer) -> None:
            frame = await peer.frame()
            await go_on.wait()
            await peer.send(response(correlation_id_of(frame)))
            await peer.frame()

        async with gateway(kafka, requests=requests, max_idle_ms=200) as running:
            idle, half, parked, waiting = [await running.connect() for _ in range(4)]
            await half.send(request(FORWARDED, 1)[:6])
            await parked.send(request(LOCAL, 2))
            await waiting.send(request(FORWARDED, 3))
            assert await idle.ended() == b""
            assert await half.ended() == b""
            await asyncio.sleep(0.5)
            assert running.router.connection_count == 2
            go_on.set()
            assert (await parked.reply())[0] == 2
            assert (await waiting.reply())[0] == 3
            assert await parked.ended() == b""
            await running.empty()

    run(main())


def test_activity_keeps_a_connection_open(run: Run) -> None:
    async def main() -> None:
        async with gateway(max_idle_ms=1500) as running:
            client = await running.connect()
            for number in range(20):
                await client.send(request(LOCAL if number % 2 else FORWARDED, number))
                assert (await client.reply())[0] == number
                await asyncio.sleep(0.1)

    run(main())


def test_a_negative_limit_is_none(run: Run) -> None:
    async def main() -> None:
        async with gateway(max_idle_ms=-1) as running:
            client = await running.connect()
            await asyncio.sleep(0.2)
            await client.send(request(LOCAL, 1))
            assert (await client.reply())[0] == 1

    run(main())


def test_a_client_that_does_not_read_its_response_is_idle(run: Run) -> None:
    async def kafka(peer: Peer) -> None:
        frame = await peer.frame()
        await peer.send(response(correlation_id_of(frame), bytes(50_000_000)))

    async def main() -> None:
        async with gateway(kafka, max_idle_ms=300) as running:
            client = await running.connect(limit=1000)
            await client.send(request(FORWARDED, 1))
            await running.empty()

    run(main())


def test_clients_that_do_not_authenticate_are_closed(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with gateway(upstream_uses_sasl=True, authentication_timeout_ms=100) as running:
            client = await running.connect()
            assert await client.ended() == b""

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "authentication.timeout.ms" in caplog.text


def test_a_stop_waits_for_responses_that_are_due(run: Run) -> None:
    async def main() -> None:
        received = asyncio.Event()

        async def kafka(peer: Peer) -> None:
            frame = await peer.frame()
            received.set()
            await asyncio.sleep(0.2)
            await peer.send(response(correlation_id_of(frame), b"kafka"))
            late = await peer.frame()
            raise AssertionError(f"{late!r} was sent after the stop")

        async with gateway(kafka) as running:
            client, idle = await running.connect(), await running.connect()
            await client.send(request(FORWARDED, 1))
            await received.wait()
            stopping = asyncio.get_running_loop().create_task(running.router.stop())
            await asyncio.sleep(0.02)
            await client.send(request(FORWARDED, 2), request(LOCAL, 3))
            assert await client.reply() == (1, b"kafka")
            assert await client.ended() == b""
            assert await idle.ended() == b""
            await stopping
            assert not running.requests.answered
            with pytest.raises(OSError):
                await running.connect()

    run(main())


def test_a_stop_does_not_wait_for_ever(run: Run) -> None:
    async def kafka(peer: Peer) -> None:
        await peer.frame()
        await asyncio.sleep(60)

    async def main() -> None:
        async with gateway(kafka, drain_ms=200) as running:
            client = await running.connect()
            await client.send(request(FORWARDED, 1))
            await until(lambda: bool(running.kafka.peers), "not connected")
            began = time.monotonic()
            await running.router.stop()
            assert 0.15 < time.monotonic() - began < 5
            assert running.router.connection_count == 0

    run(main())


def test_ports_open_for_new_brokers_and_stay_open_without_them(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with gateway() as running:
            with pytest.raises(OSError):
                await running.connect(2)
            running.brokers.change({1: running.kafka.address, 2: running.kafka.address, 70_000: running.kafka.address})
            client = await running.connect(2)
            await client.send(request(FORWARDED, 1))
            assert (await client.reply())[0] == 1
            running.brokers.change({1: running.kafka.address})
            other = await running.connect(2)
            await other.send(request(LOCAL, 1))
            assert (await other.reply())[0] == 1
            assert [one.node_id for one in running.requests.clients] == [2]

    run(main())
    assert "broker 70000" in caplog.text


def test_the_bootstrap_port_goes_to_any_broker_that_can_be_reached(run: Run) -> None:
    async def main() -> None:
        async with gateway() as running:
            dead = Address("127.0.0.1", running.brokers.base + 3)
            running.brokers.change({0: dead, 1: running.kafka.address})
            for number in range(6):
                client = await running.connect(None)
                await client.send(request(FORWARDED, number), request(LOCAL, 9))
                assert await client.reply() == (number, b"kafka")
                assert await client.reply() == (9, b"local")
            assert {one.node_id for one in running.requests.clients} == {None}
            assert {one.session.client_host for one in running.requests.clients} == {"127.0.0.1"}

    run(main())


def test_a_port_that_is_in_use_is_named(run: Run) -> None:
    async def main() -> None:
        async with gateway() as running:
            port = running.brokers.base
            second = Router(running.brokers, FakeRequests(), RouterSettings(listen=Address(HOST, port)))
            with pytest.raises(OSError, match=f"127.0.0.1:{port}: Address already in use"):
                await second.start()

    run(main())
