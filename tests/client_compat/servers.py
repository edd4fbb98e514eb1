"""Holdfast or Apache Kafka: what the tests need to know of either."""

from pathlib import Path
from typing import Protocol

from tests.support.tcp_proxy import TcpProxy


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


def stored_codec(server: Server, topic: str, partition: int = 0) -> int:
    """The codec of the partition's first batch as it lies on disk: both brokers keep Kafka's segment format."""
    segment = server.data_dir / f"{topic}-{partition}" / f"{0:020}.log"
    head = segment.read_bytes()[:23]
    return int.from_bytes(head[21:23]) & 0b111
