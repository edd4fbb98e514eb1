"""`Pool`: several consumers of one group in one process, each a member with its own thread.

    pool = Pool({"bootstrap.servers": "localhost:9092", "group.id": "billing", "group.instance.id": "billing-eu"}, 4)
    pool.instance_ids        # ["billing-eu-thread-1", …, "billing-eu-thread-4"]
    pool.run(["orders"], handle)

The instance ids are derived from the application's own, so that an operator can list, stop and remove its members
(KIP-345). If the broker supports it, the members join in one request (see `join_batcher`).
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.consumer import Consumer
from holdfast.client.errors import ConfigError
from holdfast.client.join_batcher import JoinBatcher
from holdfast.client.membership_config import instance_ids
from holdfast.client.runtime import SYSTEM, Runtime

POLL_INTERVAL_S: Final = 0.2
MAX_POLL_RECORDS: Final = 500
STRATEGY: Final = "partition.assignment.strategy"

Handle = Callable[[Consumer, Any], None]


class Pool:
    def __init__(self, config: Mapping[str, Any], members: int, *, _runtime: Runtime = SYSTEM) -> None:
        if members < 1:
            raise ConfigError(f"a pool needs at least one member, not {members}")
        instance_id = config.get("group.instance.id")
        client_id = config.get("client.id", "holdfast")
        self.instance_ids: list[str] = instance_ids(instance_id, members) if instance_id else []
        """The instance ids of this application's members; empty if they are dynamic."""
        self.consumers: list[Consumer] = []
        self._clock = _runtime.clock
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._stores_offsets = "enable.auto.offset.store" not in config
        try:
            for number in range(members):
                # A record counts as processed when `handle` returns, not when it was read.
                own = {"enable.auto.offset.store": False, **config, "client.id": f"{client_id}-thread-{number + 1}"}
                if self.instance_ids:
                    own["group.instance.id"] = self.instance_ids[number]
                if STRATEGY in config:  # the state of an assignor belongs to one member
                    own[STRATEGY] = copy.deepcopy(config[STRATEGY])
                self.consumers.append(Consumer(own, _runtime=_runtime))
            if members > 1:
                batcher = JoinBatcher(members, runtime=_runtime)
                for consumer in self.consumers:
                    consumer.use_batcher(batcher)
        except BaseException:
            self.close()
            raise

    def start(self, topics: Iterable[str], handle: Handle, **callbacks: Any) -> None:
        """Every member subscribes and passes each record to `handle(consumer, message)`, in its own thread. The
        callbacks are those of `Consumer.subscribe`."""
        wanted = list(topics)
        for number, consumer in enumerate(self.consumers, 1):
            thread = threading.Thread(
                target=self._work,
                args=(consumer, wanted, handle, callbacks),
                name=f"holdfast-pool-{number}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()

    def run(self, topics: Iterable[str], handle: Handle, **callbacks: Any) -> None:
        """As `start`, and wait until `stop` is called or a member fails. Raises the error of a failed member."""
        self.start(topics, handle, **callbacks)
        try:
            self._clock.wait(self._stopping, None)
        finally:
            self.close()
        self.check()

    def check(self) -> None:
        """Raises the error of a failed member, if any."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let the members finish their current record. May be called by any thread or a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        """Stop, and wait until every member has committed and closed."""
        self._stopping.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                self._clock.join(thread, None)
        started = bool(self._threads)
        if not started:
            for consumer in self.consumers:
                consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _work(self, consumer: Consumer, topics: list[str], handle: Handle, callbacks: Mapping[str, Any]) -> None:
        try:
            with consumer:
                consumer.subscribe(topics, **callbacks)
                while not self._stopping.is_set():
                    for message in consumer.consume(MAX_POLL_RECORDS, POLL_INTERVAL_S):
                        handle(consumer, message)
                        if self._stores_offsets and message.error() is None:
                            consumer.store_offsets(message)
        except BaseException as error:  # noqa: BLE001 - kept for the caller that waits for the pool
            self._failure = self._failure or error
            self._stopping.set()
