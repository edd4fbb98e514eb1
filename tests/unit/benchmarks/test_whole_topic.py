"""The reader that goes from batch to batch, against a broker."""

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.librdkafka import new_topic, run_client
from benchmarks.whole_topic import read, walk
from holdfast.wire.records import Record, encode_batch
from tests.support.holdfast_broker import HoldfastBroker

PARTITIONS = 3
RECORDS = 6_000
RECORD_BYTES = 1_000


@pytest.fixture
def broker() -> Iterator[HoldfastBroker]:
    with HoldfastBroker() as running:
        yield running


def batch(base_offset: int, count: int) -> bytes:
    encoded = encode_batch([Record(at, 0, None, b"value") for at in range(count)])
    return base_offset.to_bytes(8) + encoded[8:]


def test_reads_every_partition_to_its_end(broker: HoldfastBroker) -> None:
    # Given more in each partition than one fetch may bring
    with new_topic(broker, PARTITIONS) as topic:
        shape: dict[str, Any] = {
            "topic": topic,
            "partitions": PARTITIONS,
            "records": RECORDS,
            "record_bytes": RECORD_BYTES,
        }
        run_client("produce", bootstrap=broker.bootstrap, server_pid=broker.pid, **shape, full_batches=True)

        figures = read(broker.address, topic, PARTITIONS, RECORDS, RECORD_BYTES, broker.pid)

    assert figures["records"] == RECORDS
    assert figures["fetches"] > 1
    assert figures["mb_per_s"] == pytest.approx(RECORDS * RECORD_BYTES / 1e6 / figures["seconds"])


def test_a_batch_that_is_cut_off_is_asked_for_again() -> None:
    first, second = batch(7, 3), batch(10, 2)

    assert walk(first + second, 7) == (12, 5)
    assert walk(first + second[:-1], 7) == (10, 3)
    assert walk(first + second[:20], 7) == (10, 3)
    assert walk(b"", 7) == (7, 0)
