"""Two answers to Produce that surprise whoever writes a client; the rest of it is in tests/broker and tests/real."""

from __future__ import annotations

from holdfast.wire.records import Record, encode_batch
from tests.broker.wire_client import NOW_MS, produce_request
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import NEWEST

PRODUCE_VERSION = 9


def idempotent_batch(sequence: int) -> bytes:
    return encode_batch([Record(0, NOW_MS, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=sequence)


@scenario(since=NEWEST)
def duplicate_of_a_produced_batch(scene: Scene) -> None:
    """It is answered with the offset it has already, and with its own timestamp as the log append time."""
    topic = f"{scene.group}-topic"
    scene.creates_topic(topic, 1)
    for sequence in (0, 1, 1):
        scene.asks(produce_request(topic, idempotent_batch(sequence)), PRODUCE_VERSION)


@scenario(since=NEWEST, listed=[Listed(12, "admin hears nothing", "admin hears Produce: …error_code=87, …")])
def null_instead_of_records(scene: Scene) -> None:
    request = produce_request("orders", b"")
    request.topic_data[0].partition_data[0].records = None
    scene.asks(request, PRODUCE_VERSION)
