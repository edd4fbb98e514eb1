"""The client with a clock and a transport of the test's own: no socket is opened and no time passes."""

from __future__ import annotations

import select
import ssl
import threading
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from holdfast.client.addresses import Address
from holdfast.client.clock import Clock
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import ConnectionFailed, RequestTimedOut
from holdfast.client.runtime import Runtime
from holdfast.client.settings import NetworkSettings
from holdfast.client.transport import Waker

ADDRESS = Address("broker.example", 9092)
START_S = 1_000.0


class VirtualClock:
    """Every wait is over at once, and has taken its whole time."""

    def __init__(self) -> None:
        self.seconds = START_S

    def now(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        self.seconds += 0 if event.is_set() else timeout_s or 0
        return event.is_set()

    def wait_notified(self, condition: threading.Condition, timeout_s: float) -> bool:
        self.seconds += timeout_s
        return False

    def join(self, thread: threading.Thread, timeout_s: float | None) -> None:
        self.seconds += timeout_s or 0 if thread.is_alive() else 0

    def poll(self, descriptors: select.poll, deadline: float) -> list[tuple[int, int]]:
        self.seconds = max(self.seconds, deadline)
        return []


@dataclass
class SilentTransport:
    """Takes every request and never responds."""

    address: Address
    waker: Waker
    family: int
    clock: Clock
    closing: bool = False
    pending: bool = False
    written: list[bytes] = field(default_factory=list)

    def connect(self, deadline: float, tls: ssl.SSLContext | None) -> None:
        pass

    def fileno(self) -> int:
        return -1

    def read(self, deadline: float, *, wakeable: bool = False) -> bytes | None:
        assert isinstance(self.clock, VirtualClock)
        self.clock.seconds = deadline
        return None

    def read_into(self, room: memoryview, deadline: float, *, wakeable: bool = False) -> int:
        raise AssertionError("there was no length of a response")

    def write(self, data: bytes, deadline: float) -> None:
        self.written.append(data)

    def release(self) -> None:
        pass


@dataclass
class RefusingTransport(SilentTransport):
    def connect(self, deadline: float, tls: ssl.SSLContext | None) -> None:
        raise ConnectionFailed(f"{self.address}: cannot connect: refused")


def test_a_broker_that_never_responds_costs_no_time() -> None:
    clock, opened = VirtualClock(), list[SilentTransport]()

    def open_transport(address: Address, waker: Waker, family: int, clock: Clock) -> SilentTransport:
        opened.append(SilentTransport(address, waker, family, clock))
        return opened[-1]

    settings = NetworkSettings((ADDRESS,), connection_setup_timeout_s=30.0)
    cluster = ClusterClient(settings, runtime=Runtime(clock, open_transport))

    with pytest.raises(RequestTimedOut, match=r"no answer to ApiVersions within 30\.0 s"):
        cluster.open(ADDRESS)

    assert clock.seconds == START_S + 30
    assert [one.address for one in opened] == [ADDRESS]
    assert opened[0].closing and len(opened[0].written) == 1


def test_attempts_back_off_until_the_deadline() -> None:
    clock, attempts = VirtualClock(), list[float]()

    def open_transport(address: Address, waker: Waker, family: int, clock: Clock) -> SilentTransport:
        attempts.append(clock.now())
        return RefusingTransport(address, waker, family, clock)

    settings = NetworkSettings((ADDRESS,), reconnect_backoff_s=1.0, reconnect_backoff_max_s=60.0)
    cluster = ClusterClient(settings, runtime=Runtime(clock, open_transport))

    with pytest.raises(ConnectionFailed, match=r"no broker can be reached: broker\.example:9092: .*refused"):
        cluster.any(clock.now() + 600)

    gaps = [later - earlier for earlier, later in pairwise(attempts)]
    assert all(1.0 <= gap <= 60.0 for gap in gaps)
    assert gaps[-1] > 30.0, "the delay has grown to its maximum"
    assert clock.now() <= START_S + 600
