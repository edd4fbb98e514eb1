"""What handlers ask of a broker, on real files and without sockets, so that a test can call them one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import holdfast.broker.api.handlers  # noqa: F401  # registers every handler
from holdfast.broker.api.registry import HANDLERS
from holdfast.broker.api.rejected_transactions import RejectedTransactionsLog
from holdfast.broker.api.replies import PreEncoded
from holdfast.broker.api.request import ClientSession, RequestContext
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.config.listeners import Listener
from holdfast.broker.config.security import ListenerSecurity
from holdfast.broker.network.bound_listener import BoundListener
from holdfast.broker.storage.producer_ids import ProducerIds
from holdfast.broker.storage.topics import Topic, Topics
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.broker.util.slices import SliceScheduler
from holdfast.log import DataDirectory
from holdfast.wire.batch import batches
from holdfast.wire.message import decode, encode
from holdfast.wire.records import Record, encode_batch

NOW_MS = 1_700_000_000_000


class _Peer:
    client_host = "192.0.2.7"
    listener = BoundListener(Listener("broker.test", 9092), ListenerSecurity())
    permissions = None


class HandlerBroker:
    rack: str | None = None
    authorizer = None

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.config = BrokerConfig.of(settings or {})
        self._open()

    def _open(self) -> None:
        self.data = DataDirectory.open(self.directory, node_id=self.config.node_id)
        self.tasks = ShieldedTasks()
        self.slices = SliceScheduler()
        self.topics = Topics(self.data, self.config, self.tasks, self.now_ms)
        self.topics.load()
        self.producer_ids = ProducerIds(self.data.path)
        self.rejected_transactions = RejectedTransactionsLog()

    @property
    def config_lock(self) -> asyncio.Lock:
        return self.topics.config_lock

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def cluster_id(self) -> str:
        return self.data.cluster_id

    @staticmethod
    def now_ms() -> int:
        return NOW_MS

    def die(self) -> None:
        """As after a kill: nothing is closed properly; only the lock is free."""
        self.data.close(self.topics.logs(), clean=False)

    def restart(self) -> None:
        """As after a clean stop: every log is at rest."""
        self.data.close(self.topics.logs())
        self._open()

    def restart_after_kill(self) -> None:
        self.die()
        self._open()

    # -- asking ----------------------------------------------------------------------------------------------------

    async def handle(self, request: Any, version: int) -> Any:
        """What the handler returns in the end; the request goes through the codec of its version."""
        handler = HANDLERS[type(request).API.key]
        received = decode(type(request), version, encode(request, version))
        context = RequestContext(cast("ClientSession", _Peer()), version, "test")
        answer = handler.function(self, received, context)
        if isinstance(answer, Generator):
            answer = self.slices.start(answer)
        return await answer if isinstance(answer, Coroutine) else answer

    async def answer(self, request: Any, version: int) -> Any:
        """The decoded reply; request and reply go through the codec of their version, as on a connection."""
        response = await self.handle(request, version)
        body = response.body if isinstance(response, PreEncoded) else encode(response, version)
        return decode(type(request).API.response, version, body)

    def ask(self, request: Any, version: int) -> Any:
        return asyncio.run(self.answer(request, version))

    # -- given -----------------------------------------------------------------------------------------------------

    def topic(self, name: str, partitions: int = 1, overrides: Mapping[str, str] | None = None) -> Topic:
        created = asyncio.run(self.topics.create(name, partitions, dict(overrides or {})))
        assert created is not None, f"{name} exists already"
        return created

    def append(self, topic: Topic, timestamps: Sequence[int], partition: int = 0) -> None:
        """One batch with a record at each of the timestamps."""
        records = [Record(number, timestamp, b"key", b"value") for number, timestamp in enumerate(timestamps)]
        batch = list(batches(bytearray(encode_batch(records))))
        topic.partitions[partition].log.append(batch, leader_epoch=0, now_ms=NOW_MS)
