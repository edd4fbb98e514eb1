"""The log's files are Kafka's files: each reads, and carries on, what the other wrote."""

import re
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.log.config import LogConfig
from holdfast.log.data_directory import DataDirectory
from holdfast.wire.batch import parse_header
from holdfast.wire.compression import Codec
from holdfast.wire.records import decode_batch
from tests.support.apache_kafka import NODE_ID, ApacheKafka
from tests.support.kafka_distribution import kafka_distribution
from tests.unit.log.samples import NOW_MS, TINY, append, contents, open_log, sample

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def test_kafkas_dump_tool_reads_our_segments(tmp_path: Path) -> None:
    # given a log of several segments, with every codec, an idempotent producer, and deep indexes
    log = open_log(tmp_path / "orders-0", replace(TINY, segment_bytes=3000))
    for number in range(60):
        codec = Codec(number % len(Codec))
        value = b"payload-%03d " % number * 10
        timestamp = NOW_MS + 10 * number
        batch = sample(3, value=value, timestamp=timestamp, producer_id=7, sequence=3 * number, codec=codec)
        append(log, batch)
    log.close()
    segments = sorted(log.directory.glob("*.log"))
    assert len(segments) > 3

    # when Kafka's tool goes through all of it
    files = [path for path in log.directory.iterdir() if path.suffix in (".log", ".index", ".timeindex")]
    text = dump(*sorted(files), options=["--deep-iteration", "--print-data-log"])

    # then it finds every record, with the right offset, in batches that are valid, and no fault in the indexes
    payloads = re.findall(r"\| offset: (\d+) .*payload: payload-(\d+) ", text)
    assert payloads == [(str(offset), f"{offset // 3:03d}") for offset in range(180)]
    assert text.count("isvalid: true") == 60
    assert "isvalid: false" not in text
    assert "invalid bytes" not in text
    assert complaints(text) == []
    assert len(re.findall(r"^offset: \d+ position: \d+", text, re.M)) > 20, "index entries"
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", text, re.M)) > 20, "time index entries"


def test_kafkas_dump_tool_complains_of_an_index_that_lies(tmp_path: Path) -> None:
    """The control of the test above."""
    log = open_log(tmp_path / "orders-0", replace(TINY, segment_bytes=3000))
    for _ in range(20):
        append(log, sample(3))
    log.close()
    index = log.directory / f"{0:020d}.index"
    entries = bytearray(index.read_bytes())
    entries[3] += 1
    index.write_bytes(entries)

    text = dump(index, options=["--deep-iteration"])

    assert complaints(text)


def test_kafkas_dump_tool_reads_our_producer_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    append(log, sample(3, producer_id=7, epoch=2, sequence=4))
    log.close()

    text = dump(log.directory / f"{3:020d}.snapshot")

    assert "producerId: 7" in text
    assert "producerEpoch: 2" in text
    assert re.search(r"lastSequence: 6\b|lastSeq: 6\b", text)
    assert re.search(r"lastOffset: 2\b", text)


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_a_log_that_kafka_wrote_opens_and_carries_on(tmp_path: Path, ending: str) -> None:
    # given records that a real Kafka stored, in segments of its own
    with ApacheKafka({"log.segment.bytes": str(1024 * 1024)}, directory=tmp_path) as kafka:
        topic = create_topic(kafka)
        values = [b"%s %d " % (codec.encode(), n) * 20 for codec in CODECS for n in range(40)]
        for codec in CODECS:
            produce(kafka, topic, [value for value in values if value.startswith(codec.encode())], codec)
        kafka.stop() if ending == "stopped" else kafka.kill()

        # when our log opens the directory
        directory = DataDirectory.open(kafka.data_dir, node_id=NODE_ID)
        assert directory.was_clean is (ending == "stopped")
        log = directory.open_log(topic, 0, LogConfig(), now_ms=NOW_MS)

        # then it holds what Kafka held
        records = [record for batch in contents(log) for record in decode_batch(batch)]
        assert [record.value for record in records] == values
        assert [record.offset for record in records] == list(range(len(values)))
        header = parse_header(contents(log)[-1])
        assert header.producer_id >= 0, "the last one came from an idempotent producer"

        # and when we append and close, Kafka serves both
        for value in (b"ours", b"ours too"):
            log.append(sample(2, value=value), leader_epoch=header.leader_epoch, now_ms=NOW_MS)
        directory.close({(topic, 0): log})
        kafka.start()
        assert consume(kafka, topic, len(values) + 4) == [*values, b"ours", b"ours", b"ours too", b"ours too"]


def dump(*files: Path, options: Sequence[str] = ()) -> str:
    """All that the tool says: what it finds goes to stdout, its complaints go to stderr."""
    command = kafka_distribution().command(DUMP, *options, "--files", ",".join(map(str, files)))
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=True)
    return done.stdout.decode()


def complaints(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.search("mismatch|out of order|failed", line, re.IGNORECASE)]


def create_topic(kafka: ApacheKafka) -> str:
    topic = f"log-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    return topic


def produce(kafka: ApacheKafka, topic: str, values: Sequence[bytes], codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "batch.num.messages": 7,
            "linger.ms": 20,
        }
    )
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def consume(kafka: ApacheKafka, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while len(values) < count:
            messages = consumer.consume(count - len(values), timeout=30)
            assert messages, f"only {len(values)} of {count} records came"
            for message in messages:
                assert message.error() is None, message.error()
                value = message.value()
                assert isinstance(value, bytes)
                values.append(value)
    finally:
        consumer.close()
    return values
