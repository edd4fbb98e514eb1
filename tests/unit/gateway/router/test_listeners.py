"""The ports of the router."""

from __future__ import annotations

import asyncio
import socket

import pytest

from holdfast.client.addresses import Address
from holdfast.gateway.router.listeners import Listeners
from tests.support.held_ports import held_port_range
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import HOST, until


def test_each_broker_has_its_port_and_a_failure_costs_one_connection(run: Run) -> None:
    async def main() -> None:
        held = held_port_range(3)
        base = held[0].getsockname()[1]
        accepted: list[int | None] = []

        def start(node_id: int | None, peer: socket.socket) -> None:
            accepted.append(node_id)
            if len(accepted) == 1:
                raise ValueError("the first one fails")
            peer.close()

        listeners = Listeners(Address(HOST, base), start)
        for node_id in (None, 0, 1, 1):
            listeners.open(node_id)
        for port in (base, base + 1, base + 2):
            reader, writer = await asyncio.open_connection(HOST, port)
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
        await until(lambda: accepted == [None, 0, 1], "not accepted")
        with pytest.raises(OSError, match="does not exist"):
            listeners.open(65_535)
        listeners.close()
        with pytest.raises(OSError):
            await asyncio.open_connection(HOST, base)
        for one in held:
            one.close()

    run(main())
