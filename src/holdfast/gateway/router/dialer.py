"""Connecting to the brokers."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, NamedTuple

from holdfast.client.addresses import Address
from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.router.ports import Brokers


class Dialed(NamedTuple):
    socket: socket.socket
    host: str
    """As Kafka's certificate has to name it."""


class Dialer:
    def __init__(self, brokers: Brokers, timeout_s: float) -> None:
        self._brokers = brokers
        self._timeout_s = timeout_s
        self._next = 0

    async def dial(self, node_id: int | None) -> Dialed:
        """Connects to this broker, or to any that can be reached. Raises KafkaUnreachable."""
        failure = KafkaUnreachable("Kafka lists no live broker")
        for candidate in self._in_turn() if node_id is None else [node_id]:
            try:
                address = self._brokers.upstream(candidate)
                async with asyncio.timeout(self._timeout_s):
                    return Dialed(await _connect(address), address.host)
            except KafkaUnreachable as error:
                failure = error
            except TimeoutError:
                failure = _unreachable(candidate, address, f"no answer within {self._timeout_s:g} s")
            except OSError as error:
                failure = _unreachable(candidate, address, _reason(error))
        raise failure

    def _in_turn(self) -> list[int]:
        """All live brokers, each time beginning with the next one."""
        node_ids = list(self._brokers.node_ids)
        if not node_ids:
            return []
        self._next = (self._next + 1) % len(node_ids)
        return node_ids[self._next :] + node_ids[: self._next]


def _unreachable(node_id: int, address: Address, reason: str) -> KafkaUnreachable:
    return KafkaUnreachable(f"cannot reach broker {node_id} at {address}: {reason}")


def _reason(error: OSError) -> str:
    """asyncio replaces the system's text by one without the reason."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


async def _connect(address: Address) -> socket.socket:
    """To the first address of the host that answers."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
    failure = OSError(f"{address.host} has no address")
    for family, kind, protocol, _, resolved in found:
        peer = socket.socket(family, kind, protocol)
        peer.setblocking(False)
        target: Any = resolved  # Any: a tuple whose form depends on the family
        try:
            await loop.sock_connect(peer, target)
        except OSError as error:
            peer.close()
            failure = error
        except BaseException:
            peer.close()
            raise
        else:
            return peer
    raise failure
