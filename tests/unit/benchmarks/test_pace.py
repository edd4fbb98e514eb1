"""The load that keeps its pace, against a broker that is suspended under it."""

import time
from collections.abc import Iterator

import pytest

from benchmarks.librdkafka import end_offsets, new_topic
from benchmarks.pace import Pace, Paced, fetch_frame, keep_pace
from benchmarks.steady import until
from holdfast.wire.apis.fetch import FetchRequest
from holdfast.wire.headers import decode_request_header
from holdfast.wire.message import decoder
from tests.support.holdfast_broker import HoldfastBroker
from tests.unit.benchmarks.compiler import NEEDS_A_COMPILER

RATE = 500
STOOD_STILL_S = 0.5

pytestmark = NEEDS_A_COMPILER


@pytest.fixture(scope="module")
def broker() -> Iterator[HoldfastBroker]:
    with HoldfastBroker() as running:
        yield running


@pytest.fixture
def topic(broker: HoldfastBroker) -> Iterator[str]:
    with new_topic(broker, partitions=1) as name:
        yield name


def test_sends_by_the_clock_and_consumes_all_of_it(broker: HoldfastBroker, topic: str) -> None:
    figures = keep_pace(Pace(RATE, 1), broker, topic)

    # Then as many records as were due are stored, and they took the time that they were due over
    assert figures["records"] == RATE
    assert end_offsets(broker, topic, 1) == [RATE]
    assert figures["seconds"] >= (RATE - 1) / RATE
    # And a record is sent before it is acknowledged or consumed
    for what in ("ack", "trip"):
        assert 0 <= figures["late_p50_ms"] <= figures[f"{what}_p50_ms"] <= figures[f"{what}_p99_ms"]
        assert figures[f"{what}_p99_ms"] <= figures[f"{what}_p999_ms"] <= figures[f"{what}_max_ms"]


def test_a_second_load_begins_where_the_first_has_ended(broker: HoldfastBroker, topic: str) -> None:
    keep_pace(Pace(RATE, 0.2), broker, topic)

    figures = keep_pace(Pace(RATE, 0.2, key=b"again"), broker, topic)

    assert figures["records"] == RATE / 5
    assert end_offsets(broker, topic, 1) == [2 * RATE // 5]


def test_a_paused_server_delays_all_that_is_due_meanwhile(broker: HoldfastBroker, topic: str) -> None:
    # Given a load that is under way
    with Paced(Pace(RATE, 60), broker, topic) as load:
        until(lambda: end_offsets(broker, topic, 1)[0] > RATE / 2, "half a second of records", 30)
        # When the server stands still
        broker.suspend()
        time.sleep(STOOD_STILL_S)
        broker.resume()
        figures = load.stop()

    # Then it shows in the percentiles and not in one record alone: those due first waited for nearly all of it
    assert figures["trip_max_ms"] >= STOOD_STILL_S * 1000
    late_records = RATE * STOOD_STILL_S / 2
    assert late_records / figures["records"] > 0.01, "the load ran for so long that a hundredth of it is more than this"
    assert figures["trip_p99_ms"] >= STOOD_STILL_S * 1000 / 2
    assert figures["ack_p99_ms"] >= STOOD_STILL_S * 1000 / 2


def test_a_record_that_is_refused_is_an_error(broker: HoldfastBroker) -> None:
    # Given a topic that takes no records without a key
    with new_topic(broker, 1, {"cleanup.policy": "compact"}) as compacted:
        figures = keep_pace(Pace(RATE, 0.2, key=b"a key"), broker, compacted)
        with pytest.raises(RuntimeError, match="a record was refused"):
            keep_pace(Pace(RATE, 0.2), broker, compacted)

    assert figures["records"] == RATE / 5


def test_the_fetch_offset_is_at_the_returned_position() -> None:
    frame, at = fetch_frame("orders")
    asked = frame[:at] + (4711).to_bytes(8) + frame[at + 8 :]

    _, version, _, _, position = decode_request_header(asked[4:])
    request, _ = decoder(FetchRequest, version)(asked[4:], position)

    assert request.topics[0].topic == "orders"
    assert request.topics[0].partitions[0].fetch_offset == 4711
