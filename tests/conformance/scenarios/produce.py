"""Two surprising responses to Produce. The rest of Produce is tested in tests/broker and tests/kafka_parity."""

from __future__ import annotations

from holdfast.wire.records import Record, encode_batch
from tests.broker.wire_client import NOW_MS, produce_request
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import NEWEST

PRODUCE_VERSION = 9


def idempotent_batch(sequence: int) -> bytes:
    return encode_batch([Record(0, NOW_MS, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=sequence)


@scenario(since=NEWEST)
def duplicate_of_a_produced_batch(recorder: Recorder) -> None:
    """It is answered with the offset it has already, and with its own timestamp as the log append time."""
    topic = f"{recorder.group}-topic"
    recorder.creates_topic(topic, 1)
    for sequence in (0, 1, 1):
        recorder.requests(produce_request(topic, idempotent_batch(sequence)), PRODUCE_VERSION)


@scenario(since=NEWEST, listed=[Listed(12, "admin receives nothing", "admin receives Produce: …error_code=87, …")])
def null_instead_of_records(recorder: Recorder) -> None:
    request = produce_request("orders", b"")
    request.topic_data[0].partition_data[0].records = None
    recorder.requests(request, PRODUCE_VERSION)
