"""Where each broker is, from the addresses of `--kafka`. In transparent mode, Metadata has the gateway's alone.

An address with an id (`ID=HOST:PORT`) is taken as it is. The broker at an address without one is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from holdfast.client.addresses import Address
from holdfast.gateway.brokers import BootstrapAddress
from holdfast.gateway.kafka.connection import KafkaConnection, connect
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka.node_identity import identify
from holdfast.gateway.kafka.settings import KafkaClientSettings

_TIMEOUT_S: Final = 5.0
"""For each of connecting and answering. All addresses are asked at the same time."""


class WrongBroker(KafkaUnreachable):
    """Another broker is at the address. Its own address has to be found."""


class NodeLocator:
    def __init__(self, bootstrap: Sequence[BootstrapAddress], settings: KafkaClientSettings) -> None:
        self._settings = settings
        self._given = {one.node_id: one.address for one in bootstrap if one.node_id is not None}
        self._unnamed = [one.address for one in bootstrap if one.node_id is None]
        self._found: dict[Address, int] = {}
        self.refusal: KafkaRefused | None = None
        """Why a broker may not be asked for its id."""
        self.unreachable: dict[Address, str] = {}
        """The addresses that did not answer when they were last asked, and why."""

    @property
    def given(self) -> dict[int, Address]:
        """The addresses that were given with an id."""
        return dict(self._given)

    async def locate(self, node_ids: Collection[int]) -> dict[int, Address]:
        """The addresses of these brokers; without those that cannot be found."""
        located = self._known(node_ids)
        if len(located) < len(node_ids):
            self.refusal = None
            unknown = [one for one in self._unnamed if self._found.get(one) not in node_ids]
            await asyncio.gather(*(self._ask(address, node_ids) for address in unknown))
            located = self._known(node_ids)
        return located

    async def check(self, connection: KafkaConnection) -> None:
        """Raises WrongBroker if another broker than expected is at the address of this connection."""
        node_id = connection.node_id
        assert node_id is not None
        is_given = self._given.get(node_id) == connection.address
        if not is_given and self._found.get(connection.address) != node_id:
            return  # the address is from Metadata
        try:
            found = await identify(connection, [node_id], timeout_s=_TIMEOUT_S)
        except KafkaRefused:
            if is_given:
                return  # cannot be checked
            raise
        if found is None:
            self._found.pop(connection.address, None)
            given = f"{node_id}={connection.address}" if is_given else str(connection.address)
            raise WrongBroker(f"--kafka has {given}, but broker {node_id} is not at this address")

    def _known(self, node_ids: Collection[int]) -> dict[int, Address]:
        located = {node_id: address for node_id, address in self._given.items() if node_id in node_ids}
        for address in self._unnamed:
            node_id = self._found.get(address)
            if node_id is not None and node_id in node_ids:
                located.setdefault(node_id, address)
        return located

    async def _ask(self, address: Address, node_ids: Collection[int]) -> None:
        self.unreachable.pop(address, None)
        self._found.pop(address, None)
        try:
            connection = await connect(address, self._settings, timeout_s=_TIMEOUT_S)
            try:
                node_id = await identify(connection, node_ids, timeout_s=_TIMEOUT_S)
            finally:
                connection.close()
        except KafkaUnreachable as failure:
            self.unreachable[address] = str(failure)
        except KafkaRefused as failure:
            self.refusal = failure
        else:
            if node_id is not None:
                self._found[address] = node_id
