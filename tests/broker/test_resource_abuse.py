"""Clients that take and never give: each costs a bounded share of memory and time, and nobody else notices."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.broker.network.request_memory import SMALL_BYTES, STALLED_SECONDS
from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.headers import encode_request
from tests.broker.background_client import BackgroundClient
from tests.broker.expected_log import ExpectedLog
from tests.broker.wire_client import WireClient, batch, fetch_request
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

MEGABYTE = 1024 * 1024
POOL = 16 * MEGABYTE
BEGINNING = 2 * SMALL_BYTES
"""Enough of a request to have all its memory booked."""


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def open_sockets(pid: int) -> int:
    count = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += path.readlink().name.startswith("socket:")
    return count


def hold_the_pool(address: tuple[str, int], stack: ExitStack) -> list[WireClient]:
    """As many half-sent requests as the pool has room for."""
    holders = []
    for _ in range(POOL // (2 * MEGABYTE)):
        holder = stack.enter_context(WireClient(address))
        holder.ask(ApiVersionsRequest(), 0)
        holder.send_bytes(struct.pack(">i", 2 * MEGABYTE) + bytes(BEGINNING))
        holders.append(holder)
    for _ in range(2):
        # The event loop has gone over all its sockets once.
        with WireClient(address) as client:
            client.ask(ApiVersionsRequest(), 0)
    return holders


@pytest.fixture
def small_pool() -> Iterator[HoldfastBroker]:
    limits = {"queued.max.request.bytes": str(POOL), "socket.request.max.bytes": str(POOL)}
    with HoldfastBroker(limits) as broker:
        yield broker


def pour(client: WireClient, data: bytes) -> int:
    """Sends until the broker takes no more for a moment; returns how much it took."""
    client.socket.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 50 * MEGABYTE:
            sent += client.socket.send(data)
    return sent


@pytest.mark.parametrize("kind", ["Metadata", "Fetch"])
def test_a_client_that_never_reads_costs_no_memory(
    kind: str, broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    topic = f"unread-{kind}"
    with WireClient(broker.address) as client:
        client.create_topic(topic, partitions=50)
        client.produce(topic, batch(bytes(900_000)))
    asked = MetadataRequest(None) if kind == "Metadata" else fetch_request(topic)
    before = resident_bytes(broker.pid)
    with expected_log.is_logged_in(0), ExitStack() as stack:
        for _ in range(4):
            silent = stack.enter_context(WireClient(broker.address, receive_buffer=4096))
            taken = pour(silent, encode_request(asked, 9, 1, "greedy") * 500)
            assert taken < 20 * MEGABYTE, "requests pile up although no reply is read"

        assert resident_bytes(broker.pid) - before < 40 * MEGABYTE


def test_a_client_that_reads_all_it_asked_for_does_not_hold_the_others_up(
    broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    with WireClient(broker.address) as client:
        client.create_topic("all", partitions=300)
    ask = encode_request(MetadataRequest(None), 9, 1, "greedy") * 2000

    def read_on(client: WireClient) -> None:
        with contextlib.suppress(OSError):
            while client.socket.recv(1 << 20):
                pass

    with expected_log.is_logged_in(0, latency_s=2.0), WireClient(broker.address) as greedy:
        threading.Thread(target=read_on, args=(greedy,), daemon=True).start()
        greedy.send_bytes(ask)
        time.sleep(2)  # for as long it takes all it can get
        greedy.socket.shutdown(socket.SHUT_RDWR)


def test_a_small_request_for_much_does_not_hold_the_others_up(
    broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    with WireClient(broker.address) as client:
        client.create_topic("described")
    repeated = [DescribeConfigsResource(2, "described", None)] * 5000

    with expected_log.is_logged_in(0, latency_s=2.0), WireClient(broker.address) as greedy:
        greedy.ask(DescribeConfigsRequest(repeated), 4)


def test_a_slow_loris_is_alone_with_itself(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    frame = encode_request(ApiVersionsRequest(), 0, 1, "slow")
    with expected_log.is_logged_in(0), ExitStack() as stack:
        slow = [stack.enter_context(WireClient(broker.address)) for _ in range(100)]
        for byte in frame:
            for client in slow:
                client.send_bytes(bytes([byte]))

        assert all(client.receive_frame() for client in slow), "slow is not wrong"


def test_half_sent_large_requests_take_no_more_memory_than_the_pool(small_pool: HoldfastBroker) -> None:
    before = resident_bytes(small_pool.pid)
    with BackgroundClient(small_pool.address), ExitStack() as stack:
        for _ in range(400):
            half_open = stack.enter_context(WireClient(small_pool.address))
            half_open.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                half_open.socket.send(struct.pack(">i", POOL) + bytes(200_000))

        with WireClient(small_pool.address) as client:
            client.ask(ApiVersionsRequest(), 0)
        # Beside the pool: Python's own, and what the bystander does.
        assert resident_bytes(small_pool.pid) - before < POOL + 20 * MEGABYTE


def test_a_large_request_gets_through_when_others_hold_the_pool_and_stand_still(small_pool: HoldfastBroker) -> None:
    with ExitStack() as stack, WireClient(small_pool.address) as client:
        client.create_topic("large")
        hold_the_pool(small_pool.address, stack)
        before = time.monotonic()

        assert client.produce("large", batch(bytes(900_000))).error_code == 0
        assert time.monotonic() - before > STALLED_SECONDS / 2, "the pool was not full: this test shows nothing"


def test_a_large_request_gets_through_when_others_hold_the_pool_and_trickle(small_pool: HoldfastBroker) -> None:
    with ExitStack() as stack, WireClient(small_pool.address) as client:
        client.create_topic("large")
        trickling = hold_the_pool(small_pool.address, stack)
        stop = threading.Event()

        def trickle() -> None:
            while not stop.wait(1.0):
                for holder in trickling:
                    with contextlib.suppress(OSError):
                        holder.send_bytes(b".")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert client.produce("large", batch(bytes(900_000))).error_code == 0
        finally:
            stop.set()
            thread.join()


PACE = 20_000
"""Bytes a second: more than what counts as standing still, for one that holds little."""


@contextlib.contextmanager
def sending_slowly(holders: Sequence[WireClient]) -> Iterator[None]:
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(0.5):
            for holder in holders:
                with contextlib.suppress(OSError):
                    holder.send_bytes(bytes(PACE // 2))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_half_sent_requests_at_a_slow_pace_starve_neither_small_nor_large_ones(small_pool: HoldfastBroker) -> None:
    answered: list[str] = []

    def ask(size: int, name: str) -> None:
        with WireClient(small_pool.address) as client:
            assert client.produce("orders", batch(bytes(size))).error_code == 0
            answered.append(name)

    with ExitStack() as stack, WireClient(small_pool.address) as client:
        client.create_topic("orders")
        with sending_slowly(hold_the_pool(small_pool.address, stack)):
            large = threading.Thread(target=ask, args=(900_000, "large"))
            large.start()
            for _ in range(20):
                ask(20_000, "small")
            small_ones = answered.count("small")
            large.join()

    assert (small_ones, answered.count("large")) == (20, 1)
    # Control: the memory was full, and the large one had to wait until slow senders were disconnected.
    assert answered[0] == "small"
    assert "its half-sent request made no progress" in small_pool.log_text()


def test_disconnected_clients_leave_nothing_behind(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    before = open_sockets(broker.pid)
    with expected_log.is_logged_in(0):
        for turn in range(300):
            with WireClient(broker.address) as client:
                client.send_bytes(encode_request(ApiVersionsRequest(), 0, 1, "x")[: 3 + turn % 20])

    eventually(lambda: open_sockets(broker.pid) <= before, "all sockets of the connections are closed", within_s=10)


def test_a_broker_without_file_descriptors_serves_those_it_has_and_recovers() -> None:
    with HoldfastBroker() as broker, WireClient(broker.address) as client:
        client.create_topic("kept")
        before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        with ExitStack() as crowd:
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (open_files(broker.pid) + 11, before[1]))
            for _ in range(60):
                crowd.enter_context(WireClient(broker.address))
            answer = client.produce("kept", batch(b"still served"))
            assert answer.error_code == 0

        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)
        with WireClient(broker.address) as later:
            assert [record.value for record in later.fetch_all("kept")] == [b"still served"]
        assert "Traceback" not in broker.log_text()
