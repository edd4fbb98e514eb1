"""A well-behaved member of another group beside the expected_log: it must notice nothing of it."""

from __future__ import annotations

import threading
import time
import uuid
from types import TracebackType
from typing import Self

from tests.broker.group_members import WireMember, committed, partitions

LATENCY_S = 3.0
"""Generous: two noisy cores, and the misuse itself costs time."""


class BackgroundMember:
    """Heartbeats, commits and reads its commit back, one after the other, until the block ends."""

    def __init__(self, address: tuple[str, int], latency_s: float = LATENCY_S) -> None:
        self._member = WireMember(address, f"bystander-{uuid.uuid4().hex}")
        self._latency_s = latency_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._failure: Exception | None = None
        self._steps = 0
        self.slowest_s = 0.0

    def __enter__(self) -> Self:
        self._member.create_topic(self._member.group)
        self._member.join()
        self._member.sync({self._member.member_id: partitions(0)})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Whatever the other client did, work goes on after it.
        wanted, deadline = self._steps + 3, time.monotonic() + 30
        while self._steps < wanted and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        self._stop.set()
        self._thread.join(30)
        self._member.leave()
        self._member.socket.close()
        if kind is not None:
            return
        if self._failure is not None:
            raise AssertionError("the member of another group was disturbed") from self._failure
        assert self._steps >= wanted, "the member of another group does not get on"
        assert self.slowest_s < self._latency_s, f"a step of another group's member took {self.slowest_s:.1f} s"

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._step()
        except (OSError, AssertionError) as failure:
            self._failure = failure

    def _step(self) -> None:
        began = time.monotonic()
        member = self._member
        assert member.heartbeat() == 0
        assert member.commit(self._steps, topic=member.group) == 0
        assert committed(member, member.group) == {(member.group, 0): self._steps}
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self._steps += 1
        time.sleep(0.005)  # a steady client, not a load
