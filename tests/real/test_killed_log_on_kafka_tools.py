"""What a `kill -9` and the next start leave are Kafka's own files: its tool finds nothing wrong, index by index."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from holdfast.log import checkpoint
from tests.broker.wire_client import WireClient
from tests.real.test_log_on_kafka_tools import complaints, dump
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

SEGMENT_BYTES = 1024 * 1024
SETTINGS = {"log.segment.bytes": str(SEGMENT_BYTES), "log.cleaner.backoff.ms": "100"}
COUNT = 6000


def produce(broker: HoldfastBroker, *topics: str) -> None:
    """Some megabytes into each topic, under a hundred keys, by an idempotent producer."""
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 20}
    producer = Producer({**settings, "linger.ms": 5})
    for number in range(COUNT):
        for topic in topics:
            producer.produce(topic, b"%d " % number * 200, b"key-%d" % (number % 100), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def is_compacted(broker: HoldfastBroker) -> bool:
    """Up to the segment that is written to: there is nothing left to do, so the kill does not meet the next pass."""
    path = broker.data_dir / checkpoint.CLEANER_OFFSETS
    active = int(files(broker, "compacted", ".log")[-1].stem)
    return checkpoint.read_offsets(path).get(("compacted", 0), 0) == active > COUNT // 2


def files(broker: HoldfastBroker, topic: str, *suffixes: str) -> list[Path]:
    return sorted(path for path in (broker.data_dir / f"{topic}-0").iterdir() if path.suffix in suffixes)


def offsets(text: str) -> list[int]:
    return [int(offset) for offset in re.findall(r"\| offset: (\d+) ", text)]


@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_kafkas_dump_tool_finds_nothing_wrong_after_a_kill(tmp_path: Path, topic: str) -> None:
    with HoldfastBroker(SETTINGS, tmp_path) as broker:
        # given a log of several segments, one of them compacted, in a broker that is killed
        with WireClient(broker.address) as client:
            client.create_topic("plain")
            client.create_topic("compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        produce(broker, topic)
        if topic == "compacted":
            eventually(lambda: is_compacted(broker), "the log is compacted")
        broker.kill()

        # when Kafka's tool reads what the kill left, and again what the next start and stop made of it
        left = dump(*files(broker, topic, ".log"), options=["--deep-iteration", "--print-data-log"])
        broker.start()
        broker.stop()
        logs, indexes = files(broker, topic, ".log"), files(broker, topic, ".index", ".timeindex")
        whole = dump(*logs, *indexes, options=["--deep-iteration", "--print-data-log"])
        checked = dump(*indexes, options=["--index-sanity-check"])
        verified = dump(*indexes, options=["--verify-index-only"])

    # then no record is missing, no batch is invalid, and no index is out of order or points elsewhere
    assert offsets(whole) == offsets(left)
    if topic == "plain":
        assert len(logs) > 5
        assert offsets(whole) == list(range(COUNT))
    else:
        assert 100 <= len(offsets(whole)) < COUNT
    assert len(indexes) == 2 * len(logs)
    for text in (left, whole, checked, verified):
        assert complaints(text) == []
        assert "isvalid: false" not in text
        assert "invalid bytes" not in text
    assert checked.count("passed sanity check") == len(indexes)


def test_the_tools_check_finds_a_torn_index(tmp_path: Path) -> None:
    """The control of the test above."""
    with HoldfastBroker(SETTINGS, tmp_path) as broker:
        produce(broker, "plain")
        broker.stop()
        index = files(broker, "plain", ".index")[0]
        index.write_bytes(index.read_bytes()[:-3])

        with pytest.raises(subprocess.CalledProcessError):
            dump(index, options=["--index-sanity-check"])
