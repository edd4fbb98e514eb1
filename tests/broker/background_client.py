"""A well-behaved client beside the expected_log: it must notice nothing of it."""

from __future__ import annotations

import threading
import time
import uuid
from types import TracebackType
from typing import Self

from tests.broker.wire_client import WireClient, batch

LATENCY_S = 3.0
"""Generous: two noisy cores, and the misuse itself costs time."""


class BackgroundClient:
    """Produces with acks=all and reads back what it wrote, one record after the other, until the block ends.

    Then: every step was answered in time, and everything acknowledged is there, once and in order.
    """

    def __init__(self, address: tuple[str, int], latency_s: float = LATENCY_S) -> None:
        self._address = address
        self._latency_s = latency_s
        self._topic = f"bystander-{uuid.uuid4().hex}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._failure: Exception | None = None
        self._acknowledged: list[bytes] = []
        self.slowest_s = 0.0

    def __enter__(self) -> Self:
        with WireClient(self._address) as client:
            client.create_topic(self._topic)
        self._thread.start()
        self._wait_for(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                # Whatever the other client did, work goes on after it.
                self._wait_for(len(self._acknowledged) + 3)
        finally:
            self._stop.set()
            self._thread.join(30)
        if kind is None:
            self._check()

    def _wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 30
        while len(self._acknowledged) < count and self._thread.is_alive():
            assert time.monotonic() < deadline, "the bystander does not get on"
            time.sleep(0.005)

    def _check(self) -> None:
        if self._failure is not None:
            raise AssertionError("the bystander was disturbed") from self._failure
        assert self.slowest_s < self._latency_s, f"a request of the bystander took {self.slowest_s:.1f} s"
        with WireClient(self._address) as client:
            stored = [record.value for record in client.fetch_all(self._topic)]
        assert stored == self._acknowledged

    def _work(self) -> None:
        try:
            with WireClient(self._address) as client:
                while not self._stop.is_set():
                    self._step(client)
        except (OSError, AssertionError) as failure:
            self._failure = failure

    def _step(self, client: WireClient) -> None:
        offset = len(self._acknowledged)
        value = b"%d" % offset
        began = time.monotonic()
        answer = client.produce(self._topic, batch(value))
        assert (answer.error_code, answer.base_offset) == (0, offset), answer
        self._acknowledged.append(value)
        assert [record.value for record in client.fetch(self._topic, offset)] == [value]
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        time.sleep(0.002)  # a steady client, not a load
