"""Our own pauses: any client that was alive before one is alive after it.

The broker process is stopped (SIGSTOP) for longer than any connection may be idle, and let go again.
"""

from __future__ import annotations

import re
import time

from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from holdfast.wire.apis.fetch import FETCH
from tests.broker.logged_pauses import unpaused_s
from tests.broker.wire_client import WireClient, batch, fetch_request
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

IDLE_S = 0.8
PAUSE_S = 2 * IDLE_S
IDLE = {"connections.max.idle.ms": str(int(IDLE_S * 1000))}


def pause(broker: HoldfastBroker, seconds: float = PAUSE_S) -> None:
    broker.suspend()
    time.sleep(seconds)  # the pause itself is what is tested
    broker.resume()


def test_a_client_that_was_alive_keeps_its_connection_through_a_pause() -> None:
    with HoldfastBroker(IDLE) as broker, WireClient(broker.address) as client:
        client.ask(ApiVersionsRequest(), 0)

        pause(broker)

        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        reported = eventually(lambda: re.findall(r"paused for (\d+) ms", broker.log_text()), "the log tells of it")
        assert max(map(int, reported)) >= PAUSE_S * 1000 * 0.9


def test_without_the_pause_a_connection_of_that_age_is_closed() -> None:
    with HoldfastBroker(IDLE) as broker, WireClient(broker.address) as client:
        client.ask(ApiVersionsRequest(), 0)
        began = time.monotonic()

        assert client.is_closed_by_broker()

        assert unpaused_s(broker, began) < PAUSE_S + 2


def test_after_the_pause_an_idle_connection_still_comes_to_its_end() -> None:
    with HoldfastBroker(IDLE) as broker, WireClient(broker.address) as client:
        client.ask(ApiVersionsRequest(), 0)
        pause(broker)
        began = time.monotonic()

        assert client.is_closed_by_broker()

        assert unpaused_s(broker, began) < 3 * IDLE_S, "the pause is forgiven once, not for ever"


def test_a_request_read_right_after_a_pause_does_not_keep_a_connection_open() -> None:
    with HoldfastBroker(IDLE) as broker, WireClient(broker.address) as client:
        client.ask(ApiVersionsRequest(), 0)
        broker.suspend()
        client.send(ApiVersionsRequest(), 0)
        time.sleep(3 * IDLE_S)
        broker.resume()
        client.receive(API_VERSIONS, 0)
        began = time.monotonic()

        assert client.is_closed_by_broker()

        assert unpaused_s(broker, began) < 2.5 * IDLE_S


def test_a_request_sent_during_the_pause_is_answered() -> None:
    with HoldfastBroker(IDLE) as broker, WireClient(broker.address) as client:
        client.create_topic("paused")
        broker.suspend()
        sent = client.send(ApiVersionsRequest(), 0)
        time.sleep(PAUSE_S)
        broker.resume()

        assert client.receive(API_VERSIONS, 0)[0] == sent
        assert client.produce("paused", batch(b"after")).error_code == 0


def test_a_long_poll_survives_a_pause() -> None:
    with HoldfastBroker(IDLE) as broker, WireClient(broker.address) as reader:
        reader.create_topic("paused")
        reader.send(fetch_request("paused", 0, max_wait_ms=int(3 * PAUSE_S * 1000)), 12)
        with WireClient(broker.address) as other:
            other.ask(ApiVersionsRequest(), 0)
        pause(broker)
        with WireClient(broker.address) as writer:
            writer.produce("paused", batch(b"news"))

        _, response = reader.receive(FETCH, 12)

        assert len(response.responses[0].partitions[0].records) > 0


def test_the_longest_pause_is_logged_at_the_end() -> None:
    with HoldfastBroker() as broker:
        pause(broker, 0.7)
        with WireClient(broker.address) as client:
            client.ask(ApiVersionsRequest(), 0)
        eventually(lambda: "paused for" in broker.log_text(), "the pause is noticed")
        broker.stop()

        reported = re.search(r"longest_pause_of_the_event_loop_ms=([\d.]+)", broker.log_text())

    assert reported is not None
    assert float(reported[1]) >= 500
