"""A Kafka cluster without sockets: brokers with topics of their own knowledge, and one group coordinator."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.wire.message import Api


class FakeBrokers:
    def __init__(self, node_ids: Sequence[int]) -> None:
        self.node_ids: Sequence[int] = list(node_ids)


class FakeConnection:
    """Answers in order: a request waits for the answers to all requests before it."""

    def __init__(self, upstream: FakeUpstream, node_id: int) -> None:
        self._upstream = upstream
        self._node_id = node_id
        self._last: asyncio.Future[Any] | None = None
        self._unanswered: set[asyncio.Future[Any]] = set()
        self.is_closed = False

    def version_of(self, api: Api, highest: int | None = None) -> int:
        return api.versions[1] if highest is None else min(highest, api.versions[1])

    def send(self, request: Any, version: int | None = None, *, timeout_s: float = 30.0) -> asyncio.Future[Any]:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            answered.set_exception(KafkaUnreachable("the connection is closed"))
            return answered
        self._unanswered.add(answered)
        task = asyncio.ensure_future(self._answer(request, answered, self._last))
        self._upstream.tasks.add(task)
        task.add_done_callback(self._upstream.tasks.discard)
        self._last = answered
        return answered

    async def _answer(self, request: Any, answered: asyncio.Future[Any], before: asyncio.Future[Any] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        try:
            answer = await self._upstream.answer(self._node_id, request)
            if not answered.done():
                answered.set_result(answer)
        except KafkaUnreachable as failure:
            if not answered.done():
                answered.set_exception(failure)
        self._unanswered.discard(answered)

    async def ask(self, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any:
        return await self.send(request, version, timeout_s=timeout_s)

    def on_lost(self, action: Callable[[], None]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._upstream.open_connections -= 1
        for answered in list(self._unanswered):
            if not answered.done():
                answered.set_exception(KafkaUnreachable("the connection is closed"))
                answered.exception()  # as the real one does, so that asyncio does not log it


@dataclass
class FakeUpstream:
    """`handlers` answer requests by type. An answer may be a future, and an exception is raised."""

    node_ids: Sequence[int] = (1, 2, 3)
    cluster_id: str = "a-cluster"
    coordinator: int = 1
    former_coordinator: int | None = None
    """Returned until a caller asks again."""
    handlers: dict[type[Any], Callable[[int, Any], Any]] = field(default_factory=dict)
    unreachable: set[int] = field(default_factory=set)
    asked: list[tuple[int, Any]] = field(default_factory=list)
    open_connections: int = 0
    most_connections: int = 0
    connections: list[FakeConnection] = field(default_factory=list)
    tasks: set[asyncio.Future[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.brokers = FakeBrokers(self.node_ids)
        self.any_broker = itertools.cycle(self.node_ids)

    def requests(self, kind: type[Any]) -> list[Any]:
        return [request for _, request in self.asked if type(request) is kind]

    async def answer(self, node_id: int, request: Any) -> Any:
        await asyncio.sleep(0)
        if node_id in self.unreachable:
            raise KafkaUnreachable(f"broker {node_id} does not answer")
        self.asked.append((node_id, request))
        answer = self.handlers[type(request)](node_id, request)
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(self, node_id: int, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any:
        return await self.answer(node_id, request)

    async def ask_any(self, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any:
        return await self.answer(next(self.any_broker), request)

    async def connection(self, node_id: int) -> FakeConnection:
        return FakeConnection(self, node_id)

    async def open_connection(self, node_id: int) -> FakeConnection:
        await asyncio.sleep(0)
        if node_id in self.unreachable:
            raise KafkaUnreachable(f"broker {node_id} does not answer")
        self.open_connections += 1
        self.most_connections = max(self.most_connections, self.open_connections)
        opened = FakeConnection(self, node_id)
        self.connections.append(opened)
        return opened

    async def coordinator_of(self, key: str, key_type: int, *, refresh: bool = False) -> int:
        await asyncio.sleep(0)
        if refresh:
            self.former_coordinator = None
        return self.coordinator if self.former_coordinator is None else self.former_coordinator
