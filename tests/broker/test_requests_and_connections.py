"""How requests and connections flow: in order, parked, idle, counted, and ended."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from holdfast.wire.apis.delete_topics import DeleteTopicsRequest
from holdfast.wire.apis.fetch import FETCH
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.apis.produce import PRODUCE
from tests.broker.logged_pauses import unpaused_s
from tests.broker.serve_process import refusal
from tests.broker.wire_client import WireClient, batch, fetch_request, produce_request
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

IDLE_MS = 800


def topic_on(broker: HoldfastBroker) -> str:
    name = f"flow-{uuid.uuid4().hex}"
    with WireClient(broker.address) as client:
        client.create_topic(name)
    return name


def test_replies_to_pipelined_requests_come_in_their_order(broker: HoldfastBroker) -> None:
    topic = topic_on(broker)
    with WireClient(broker.address) as client:
        asked = []
        for number in range(200):
            asked.append((PRODUCE, 9, client.send(produce_request(topic, batch(b"%d" % number)), 9)))
            asked.append((API_VERSIONS, 0, client.send(ApiVersionsRequest(), 0)))
            asked.append((FETCH, 12, client.send(fetch_request(topic, number), 12)))

        answers = [client.receive(api, version) for api, version, _ in asked]

    assert [correlation_id for correlation_id, _ in answers] == [correlation_id for _, _, correlation_id in asked]
    offsets = [answer.responses[0].partition_responses[0].base_offset for _, answer in answers[::3]]
    assert offsets == list(range(200))


def test_a_parked_fetch_holds_up_only_its_own_connection(broker: HoldfastBroker) -> None:
    topic = topic_on(broker)
    with WireClient(broker.address) as parked, WireClient(broker.address) as other:
        began = time.monotonic()
        first = parked.send(fetch_request(topic, 0, max_wait_ms=3000), 12)
        second = parked.send(ApiVersionsRequest(), 0)
        other.ask(ApiVersionsRequest(), 0)
        assert time.monotonic() - began < 2.9

        assert parked.receive(FETCH, 12)[0] == first
        assert parked.receive(API_VERSIONS, 0)[0] == second
        assert time.monotonic() - began >= 2.99


def test_an_append_wakes_the_long_poll(broker: HoldfastBroker) -> None:
    topic = topic_on(broker)
    with WireClient(broker.address) as reader, WireClient(broker.address) as writer:
        began = time.monotonic()
        reader.send(fetch_request(topic, 0, max_wait_ms=15_000), 12)
        writer.produce(topic, batch(b"news"))

        _, response = reader.receive(FETCH, 12)

        assert len(response.responses[0].partitions[0].records) > 0
        assert time.monotonic() - began < 10


def test_an_append_to_another_partition_wakes_no_fetch(broker: HoldfastBroker) -> None:
    """Control for the wake-up: without an append of its own the poll lasts as long as it asked for."""
    topic, other = topic_on(broker), topic_on(broker)
    with WireClient(broker.address) as reader, WireClient(broker.address) as writer:
        began = time.monotonic()
        reader.send(fetch_request(topic, 0, max_wait_ms=700), 12)
        writer.produce(other, batch(b"news"))

        reader.receive(FETCH, 12)

        assert time.monotonic() - began >= 0.69


def test_the_deletion_of_its_topic_ends_a_long_poll(broker: HoldfastBroker) -> None:
    topic = topic_on(broker)
    with WireClient(broker.address) as reader, WireClient(broker.address) as admin:
        reader.send(fetch_request(topic, 0, max_wait_ms=15_000), 12)
        admin.ask(ApiVersionsRequest(), 0)
        admin.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)

        _, response = reader.receive(FETCH, 12)

        assert response.responses[0].partitions[0].error_code == 3


# -- idle connections --------------------------------------------------------------------------------------------------


def test_idle_connections_are_closed_but_not_those_whose_request_is_parked() -> None:
    with HoldfastBroker({"connections.max.idle.ms": str(IDLE_MS)}) as broker:
        with ExitStack() as stack:
            idle, parked, busy = (stack.enter_context(WireClient(broker.address)) for _ in range(3))
            busy.create_topic("quiet")
            began = time.monotonic()
            idle.ask(ApiVersionsRequest(), 0)
            parked.send(fetch_request("quiet", 0, max_wait_ms=2 * IDLE_MS), 12)
            stop = threading.Event()
            ticking = threading.Thread(target=_ask_until, args=(busy, stop))
            ticking.start()

            assert idle.is_closed_by_broker()
            idle_for_s, unpaused = time.monotonic() - began, unpaused_s(broker, began)
            parked.receive(FETCH, 12)
            stop.set()
            ticking.join()

            # Activity is noted to the last tick of the clock.
            assert idle_for_s >= IDLE_MS / 1000 - 0.1
            assert unpaused < 3 * IDLE_MS / 1000
            assert parked.ask(ApiVersionsRequest(), 0).error_code == 0
            assert busy.ask(ApiVersionsRequest(), 0).error_code == 0
        assert "idle" in broker.log_text()


def _ask_until(client: WireClient, stop: threading.Event) -> None:
    while not stop.wait(0.1):
        client.ask(ApiVersionsRequest(), 0)


def test_a_reader_that_takes_its_reply_slowly_is_not_idle() -> None:
    idle_s = 2.0
    with HoldfastBroker({"connections.max.idle.ms": str(int(idle_s * 1000))}) as broker:
        with WireClient(broker.address) as client:
            client.create_topic("large")
            for _ in range(16):
                client.produce("large", batch(bytes(1_000_000)))
        # The system lets the broker write again when a third of its buffer is free, so not too slowly.
        with WireClient(broker.address, receive_buffer=256 * 1024) as slow:
            slow.send(fetch_request("large", 0), 12)
            received = 0
            began = time.monotonic()
            while time.monotonic() - began < 2 * idle_s:
                received += len(slow.socket.recv(100_000))
                time.sleep(0.05)
            assert 1_000_000 < received < 12_000_000, "too fast or too slow to show anything"
        # What the system still holds of the reply would hide a closed connection; the log does not.
        assert "idle" not in broker.log_text()


# -- how many ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["max.connections", "max.connections.per.ip"])
def test_more_connections_than_allowed_are_refused_until_one_leaves(setting: str) -> None:
    with HoldfastBroker({setting: "5"}) as broker, ExitStack() as stack:
        admitted = [stack.enter_context(WireClient(broker.address)) for _ in range(5)]
        for client in admitted:
            client.ask(ApiVersionsRequest(), 0)

        with WireClient(broker.address) as refused:
            assert refused.is_closed_by_broker()

        assert setting in broker.log_text()
        assert all(client.ask(ApiVersionsRequest(), 0).error_code == 0 for client in admitted)
        admitted[0].socket.close()
        eventually(lambda: _is_served(broker), "a place is free", within_s=10)


def _is_served(broker: HoldfastBroker) -> bool:
    try:
        with WireClient(broker.address) as client:
            client.ask(ApiVersionsRequest(), 0)
    except ConnectionError:
        return False
    return True


# -- the end -----------------------------------------------------------------------------------------------------------


def test_sigterm_ends_parked_requests_and_open_connections_within_seconds() -> None:
    with HoldfastBroker() as broker, ExitStack() as stack:
        clients = [stack.enter_context(WireClient(broker.address)) for _ in range(20)]
        clients[0].create_topic("quiet")
        clients[0].produce("quiet", batch(b"kept"))
        for client in clients[:10]:
            client.send(fetch_request("quiet", 1, max_wait_ms=600_000), 12)
        clients[-1].ask(ApiVersionsRequest(), 0)
        clients[-2].send_bytes(b"\x00\x00\x10\x00half")

        began = time.monotonic()
        broker.stop()  # which fails unless the exit code is 0

        assert time.monotonic() - began < 5
        assert all(client.is_closed_by_broker() for client in clients)
        assert (broker.data_dir / ".kafka_cleanshutdown").exists()
        assert "Traceback" not in broker.log_text()
        broker.start()
        with WireClient(broker.address) as client:
            assert [record.value for record in client.fetch_all("quiet")] == [b"kept"]


def test_sigterm_under_load_loses_nothing_that_was_acknowledged() -> None:
    acknowledged: list[bytes] = []

    def produce_until_closed(address: tuple[str, int]) -> None:
        try:
            with WireClient(address) as client:
                for number in range(1_000_000):
                    value = b"%d" % number
                    if client.produce("load", batch(value)).error_code:
                        return
                    acknowledged.append(value)
        except OSError:
            return

    with HoldfastBroker() as broker:
        with WireClient(broker.address) as client:
            client.create_topic("load")
        thread = threading.Thread(target=produce_until_closed, args=(broker.address,))
        thread.start()
        eventually(lambda: len(acknowledged) > 100, "the producer is at work")
        broker.restart()
        thread.join(20)
        with WireClient(broker.address) as client:
            stored = [record.value for record in client.fetch_all("load")]

    assert stored[: len(acknowledged)] == acknowledged
    assert len(stored) <= len(acknowledged) + 1


def test_a_second_broker_on_the_same_data_is_refused_and_the_first_keeps_serving(tmp_path: Path) -> None:
    with HoldfastBroker(directory=tmp_path) as broker:
        said = refusal(broker.data_dir)

        assert f"in use by process {broker.pid}" in said
        with WireClient(broker.address) as client:
            client.create_topic("still-served")


def test_a_port_in_use_is_refused_in_a_sentence(broker: HoldfastBroker, tmp_path: Path) -> None:
    assert broker.bootstrap in refusal(tmp_path, listen=broker.bootstrap)


def test_data_and_port_are_free_at_once_after_a_kill() -> None:
    with HoldfastBroker() as broker:
        with WireClient(broker.address) as client:
            client.create_topic("kept")
            client.produce("kept", batch(b"record"))
            before = broker.address
            broker.kill()
            broker.start()
        assert broker.address == before
        with WireClient(broker.address) as client:
            assert [record.value for record in client.fetch_all("kept")] == [b"record"]


def test_port_0_takes_a_free_port_and_reports_it() -> None:
    with HoldfastBroker() as one, HoldfastBroker() as two:
        assert one.address[1] != two.address[1]
        assert 0 not in (one.address[1], two.address[1])
        with WireClient(one.address) as client:
            (reported,) = client.ask(MetadataRequest([]), 9).brokers
            assert (reported.host, reported.port) == one.address


def test_sigint_is_a_clean_stop_too() -> None:
    with HoldfastBroker() as broker:
        process = broker._running()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=10) == 0
        except subprocess.TimeoutExpired:
            pytest.fail("it did not stop")
        assert (broker.data_dir / ".kafka_cleanshutdown").exists()
