"""Connecting to brokers: in turn, and on to the next if one cannot be reached."""

from __future__ import annotations

import asyncio
import socket

import pytest

from holdfast.client.addresses import Address
from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.router.dialer import Dialer
from tests.support.held_ports import held_port
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import HOST, FakeBrokers


def listening() -> tuple[socket.socket, Address]:
    made = socket.create_server((HOST, 0))
    return made, Address(HOST, made.getsockname()[1])


def test_all_brokers_have_their_turn(run: Run) -> None:
    async def main() -> None:
        servers = dict(enumerate(listening() for _ in range(3)))
        dialer = Dialer(FakeBrokers({key: one[1] for key, one in servers.items()}, 0), 5)
        ports = []
        for _ in range(6):
            dialed = await dialer.dial(None)
            ports.append(dialed.socket.getpeername()[1])
            dialed.socket.close()
        assert sorted(ports) == sorted(2 * [one[1].port for one in servers.values()])
        for server, _ in servers.values():
            server.close()

    run(main())


def test_a_broker_that_cannot_be_reached_is_skipped_or_named(run: Run) -> None:
    async def main() -> None:
        server, address = listening()
        with held_port() as held:
            dead = Address(HOST, held.getsockname()[1])
            dialer = Dialer(FakeBrokers({4: dead, 5: address}, 0), 5)
            for _ in range(4):
                dialed = await dialer.dial(None)
                assert dialed.host == HOST
                dialed.socket.close()
            with pytest.raises(KafkaUnreachable, match=f"broker 4 at {dead}.*refused"):
                await dialer.dial(4)
            with pytest.raises(KafkaUnreachable, match="no broker 9"):
                await dialer.dial(9)
            with pytest.raises(KafkaUnreachable, match="no live broker"):
                await Dialer(FakeBrokers({}, 0), 5).dial(None)
        server.close()

    run(main())


def test_every_address_of_a_host_is_tried(run: Run) -> None:
    async def main() -> None:
        server, address = listening()
        dialer = Dialer(FakeBrokers({1: address._replace(host="localhost")}, 0), 5)
        dialed = await dialer.dial(1)
        assert dialed.host == "localhost"
        dialed.socket.close()
        server.close()

    run(main())


def test_a_host_without_an_address_and_one_that_does_not_answer(run: Run) -> None:
    async def main() -> None:
        brokers = FakeBrokers({1: Address("no.such.host.invalid", 1), 2: Address("192.0.2.1", 1)}, 0)
        with pytest.raises(KafkaUnreachable, match="broker 1"):
            await Dialer(brokers, 5).dial(1)
        with pytest.raises(KafkaUnreachable, match="broker 2"):
            await Dialer(brokers, 0.1).dial(2)

    run(main())


def test_a_dial_can_be_cancelled(run: Run) -> None:
    async def main() -> None:
        dialing = asyncio.get_running_loop().create_task(
            Dialer(FakeBrokers({1: Address("192.0.2.1", 1)}, 0), 5).dial(1)
        )
        await asyncio.sleep(0.02)
        dialing.cancel()
        with pytest.raises((asyncio.CancelledError, KafkaUnreachable)):
            await dialing

    run(main())
