"""Holdfast or Apache Kafka: what the tests need to know of either."""

import os
from pathlib import Path
from typing import Protocol

from tests.support.gateway_process import GatewayProcess
from tests.support.tcp_proxy import TcpProxy

ALL_GATEWAY_TESTS = os.environ.get("HOLDFAST_ALL_GATEWAY_TESTS") == "1"
"""Tests of a Holdfast broker run on a gateway in front of Apache Kafka instead."""


class Server(Protocol):
    @property
    def bootstrap(self) -> str: ...

    @property
    def data_dir(self) -> Path: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class ProxiedServer(Protocol):
    """A broker whose clients all come through ``proxy``."""

    proxy: TcpProxy

    @property
    def bootstrap(self) -> str: ...


class OneBrokerGateway(GatewayProcess):
    """Known by the address of its only broker, as a broker is."""

    @property
    def address(self) -> tuple[str, int]:
        return self.address_of(self.kafka.node_ids[0])


def stored_codec(server: Server, topic: str, partition: int = 0) -> int:
    """The codec of the partition's first batch as it lies on disk: both brokers keep Kafka's segment format."""
    segment = server.data_dir / f"{topic}-{partition}" / f"{0:020}.log"
    head = segment.read_bytes()[:23]
    return int.from_bytes(head[21:23]) & 0b111
