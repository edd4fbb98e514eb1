"""What compaction leaves are Kafka's own segments: its tool reads them, its broker serves and compacts them on."""

import re
import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.log import compaction_process
from holdfast.log.data_directory import DataDirectory
from holdfast.wire.compression import Codec
from tests.kafka_parity.test_log_on_kafka_tools import complaints, dump
from tests.support.apache_kafka import NODE_ID, ApacheKafka
from tests.unit.log.keyed_logs import COMPACT, HOUR_MS, found, keyed, values
from tests.unit.log.samples import NOW_MS, append, open_log

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]


@pytest.mark.parametrize("worth_a_process_bytes", [0, sys.maxsize])
def test_kafkas_dump_tool_reads_a_compacted_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth_a_process_bytes: int
) -> None:
    monkeypatch.setattr(compaction_process, "WORTH_A_PROCESS_BYTES", worth_a_process_bytes)
    # given batches of every codec of which some lose records, some lose all, and some hold tombstones
    log = open_log(tmp_path / "orders-0", replace(COMPACT, segment_bytes=3000))
    for number in range(100):
        codec = Codec(number % len(Codec))
        pairs = [
            (b"key-%d" % (number % 7), b"payload-%03d " % number * 5),
            (b"once-%d" % number, None if number % 4 == 0 else b"once-%03d" % number),
            (b"key-%d" % (number % 3), b"payload-%03d " % number * 5),
        ]
        append(log, keyed(pairs, codec=codec, producer_id=7, sequence=3 * number))
    append(log, keyed([(b"key-1", b"the last of producer 8")], producer_id=8, sequence=0))
    for number in range(12):
        append(log, keyed([(b"key-%d" % (number % 7), b"end-%03d" % number * 30)]))
    assert log.segment_count > 5
    first = log.compact(NOW_MS)
    assert first is not None
    append(log, keyed([(b"deleted late", None)]))
    for number in range(40):
        append(log, keyed([(b"key-0", b"more-%03d" % number * 30)]))
    second = log.compact(NOW_MS + 2 * HOUR_MS)
    assert second is not None
    assert second.tombstones_dropped == 25
    expected = [(str(record.offset), str(record.key, "ascii")) for record in found(log) if record.key is not None]
    assert len(expected) < 150
    log.close()

    # when Kafka's tool goes through all of it
    files = [path for path in log.directory.iterdir() if path.suffix in (".log", ".index", ".timeindex")]
    text = dump(*sorted(files), options=["--deep-iteration", "--print-data-log"])

    # then it finds the same records, all batches valid, an empty one for the silent producer, no fault in the indexes
    assert re.findall(r"\| offset: (\d+) .*? key: (.+?)(?: payload|$)", text, re.M) == expected
    assert "isvalid: false" not in text
    assert "invalid bytes" not in text
    assert complaints(text) == []
    assert re.search(r"baseOffset: 300 lastOffset: 300 count: 0 .*producerId: 8", text)
    assert f"deleteHorizonMs: OptionalLong[{NOW_MS + 3 * HOUR_MS}]" in text


def test_kafka_serves_a_log_that_we_compacted(tmp_path: Path) -> None:
    # given a compacted topic that a real Kafka wrote
    with ApacheKafka({"log.segment.bytes": str(1024 * 1024)}, directory=tmp_path) as kafka:
        topic = f"compacted-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result(30)
        pairs = [(b"key-%d" % (n % 10), b"%d " % n * 500 if n % 13 else None) for n in range(1000)]
        produce(kafka, topic, pairs)
        kafka.stop()

        # when we compact it, and Kafka starts on it again
        directory = DataDirectory.open(kafka.data_dir, node_id=NODE_ID)
        log = directory.open_log(topic, 0, replace(COMPACT, segment_bytes=1 << 20, segment_ms=1), now_ms=NOW_MS)
        now_ms = log.max_timestamp().timestamp + 1000
        assert log.end_offset == 1000
        done = log.compact(now_ms)
        assert done is not None
        assert done.records_after == 10
        expected = values(log)
        directory.write_cleaner_offsets({(topic, 0): log})
        directory.close({(topic, 0): log})
        kafka.start()
        produce(kafka, topic, [(b"new", b"from Kafka")])

        # then its clients see the last value of each key
        seen = consume(kafka, topic, 1001)
        assert seen == {**expected, b"new": b"from Kafka"}


def produce(kafka: ApacheKafka, topic: str, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "batch.num.messages": 7}
    producer = Producer({**settings, "compression.type": "lz4", "linger.ms": 20})
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def consume(kafka: ApacheKafka, topic: str, end_offset: int) -> dict[bytes, bytes]:
    """What is left when all up to `end_offset` is read and tombstones are taken for deletions."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: dict[bytes, bytes] = {}
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "the end did not come"
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            if value is None:
                seen.pop(key, None)
            else:
                assert isinstance(value, bytes)
                seen[key] = value
            if message.offset() == end_offset - 1:
                return seen
    finally:
        consumer.close()
