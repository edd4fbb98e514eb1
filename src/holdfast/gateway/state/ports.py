"""What the state's modules use of the client of the Kafka cluster (`gateway.kafka`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Connection(Protocol):
    """A connection of its own to one broker. Requests on it are answered in order."""

    # Any: a request is an object of any API, and the answer is of the same API.

    @property
    def node_id(self) -> int | None: ...

    @property
    def is_closed(self) -> bool: ...

    def send(self, request: Any, version: int | None = None, *, timeout_s: float = 30.0) -> asyncio.Future[Any]:
        """Fails with KafkaUnreachable if the connection is lost before the answer, which also happens if there is no
        answer in time. Raises KafkaRefused."""

    async def ask(self, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any: ...

    def on_lost(self, action: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class Brokers(Protocol):
    @property
    def node_ids(self) -> Sequence[int]: ...


class Cluster(Protocol):
    """Every call raises KafkaUnreachable while Kafka cannot be asked, and KafkaRefused if it answers with an error."""

    @property
    def brokers(self) -> Brokers: ...

    async def ask(self, node_id: int, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any: ...

    async def ask_any(self, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any: ...

    async def open_connection(self, node_id: int) -> Connection: ...

    async def leader_of(self, topic: str, partition: int, *, refresh: bool = False) -> int: ...

    async def coordinator_of(self, key: str, key_type: int, *, refresh: bool = False) -> int: ...
