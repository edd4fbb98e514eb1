"""What the topic mirror, the names of groups, adoption and release use of the Kafka cluster; `KafkaCluster` is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from holdfast.wire.message import Api


class Connection(Protocol):
    """A connection to one broker, which answers its requests in order."""

    # Any: a request is an object of any API, and the answer is of the same API.

    @property
    def is_closed(self) -> bool: ...

    def version_of(self, api: Api, highest: int | None = None) -> int:
        """The highest version that both sides support, up to `highest`. Raises KafkaRefused."""

    def send(self, request: Any, version: int | None = None, *, timeout_s: float = 30.0) -> asyncio.Future[Any]:
        """Fails with KafkaUnreachable if the connection ends, also because there is no answer in time."""

    async def ask(self, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any: ...

    def on_lost(self, action: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class Brokers(Protocol):
    @property
    def node_ids(self) -> Sequence[int]:
        """The live brokers."""


class Upstream(Protocol):
    """Every call raises KafkaUnreachable while Kafka does not answer, and KafkaRefused for an error of Kafka's."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def brokers(self) -> Brokers: ...

    async def ask(self, node_id: int, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any: ...

    async def ask_any(self, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any: ...

    async def connection(self, node_id: int) -> Connection:
        """The connection that all callers share."""

    async def open_connection(self, node_id: int) -> Connection:
        """A connection of its own."""

    async def coordinator_of(self, key: str, key_type: int, *, refresh: bool = False) -> int: ...
