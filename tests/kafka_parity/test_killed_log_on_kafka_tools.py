"""What a `kill -9` and the next start leave are Kafka's own files: its tool finds nothing wrong, index by index."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from holdfast.log import checkpoint, disk
from tests.broker.wire_client import WireClient
from tests.kafka_parity.test_log_on_kafka_tools import complaints, dump
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.unit.log import test_compaction_kills
from tests.unit.log.keyed_logs import found

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


# -- killed in the middle ----------------------------------------------------------------------------------------------


def within_a_batch(directory: Path, points: Sequence[str]) -> bool:
    """The last segment ends with half of a batch."""
    return points[-1] == "half written" and len(list(directory.glob("*.log"))) > 3


def with_a_decided_swap(directory: Path, points: Sequence[str]) -> bool:
    """The compacted segment counts, and all that it replaces is there still."""
    return points[-1] == "renamed" and any(directory.glob("*.log.swap"))


def with_half_a_swap(directory: Path, points: Sequence[str]) -> bool:
    """Some of what it replaces is gone."""
    return points[-3:] == ["unlinked", "before unlink", "unlinked"] and any(directory.glob("*.log.swap"))


def with_a_swap_without_indexes(directory: Path, points: Sequence[str]) -> bool:
    """The compacted segment has its place; the old indexes are gone, its own are not written."""
    return points.count("renamed") > 1 and points[-1] == "renamed" and points[-3] == "unlinked"


def filled(path: Path) -> None:
    """Segments of a few batches, one after the other."""
    directory, log = test_compaction_kills.start(path)
    test_compaction_kills.write(log, itertools.count(), 40)
    directory.close({test_compaction_kills.TOPIC: log})


def kill(work: Callable[[Path], None], path: Path, reached: Callable[[Path, Sequence[str]], bool]) -> None:
    """Do the work in a process of its own, which is killed when its log is in the state."""
    pid = os.fork()
    if pid == 0:
        try:
            points: list[str] = []

            def fault(point: str) -> None:
                points.append(point)
                if reached(path / "keys-0", points):
                    os.kill(os.getpid(), signal.SIGKILL)

            disk.fault = fault
            work(path)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the state was never reached: this test shows nothing"


@pytest.mark.parametrize(
    "reached", [within_a_batch, with_a_decided_swap, with_half_a_swap, with_a_swap_without_indexes]
)
def test_kafkas_dump_tool_finds_nothing_wrong_after_a_kill_in_the_middle(
    tmp_path: Path, reached: Callable[[Path, Sequence[str]], bool]
) -> None:
    # given what a kill within a batch, or within the swap of a compaction, leaves
    path, directory = tmp_path / "data", tmp_path / "data" / "keys-0"
    if reached is within_a_batch:
        kill(filled, path, reached)
        assert is_complained_about(sorted(directory.glob("*.log"))[-1]), "the control: the tool sees the half batch"
    else:
        test_compaction_kills.prepare(path)
        kill(test_compaction_kills.compact, path, reached)

    # when the next start repairs it
    data, log = test_compaction_kills.start(path)
    kept = [record.offset for record in found(log)]
    data.close({test_compaction_kills.TOPIC: log})
    logs = sorted(directory.glob("*.log"))
    indexes = sorted(path for path in directory.iterdir() if path.suffix in (".index", ".timeindex"))
    whole = dump(*logs, *indexes, options=["--deep-iteration", "--print-data-log"])
    checked = dump(*indexes, options=["--index-sanity-check"])
    verified = dump(*indexes, options=["--verify-index-only"])

    # then Kafka's tool reads what we read, and finds nothing wrong
    assert offsets(whole) == kept
    assert len(kept) >= test_compaction_kills.KEYS
    for text in (whole, checked, verified):
        assert complaints(text) == []
        assert "isvalid: false" not in text
        assert "invalid bytes" not in text
    assert checked.count("passed sanity check") == len(indexes) > 2


def is_complained_about(log: Path) -> bool:
    try:
        text = dump(log, options=["--deep-iteration", "--print-data-log"])
    except subprocess.CalledProcessError:
        return True
    return bool(complaints(text)) or "invalid bytes" in text or "isvalid: false" in text


def test_the_tools_check_finds_a_torn_index(tmp_path: Path) -> None:
    """The control of the test above."""
    with HoldfastBroker(SETTINGS, tmp_path) as broker:
        produce(broker, "plain")
        broker.stop()
        index = files(broker, "plain", ".index")[0]
        index.write_bytes(index.read_bytes()[:-3])

        with pytest.raises(subprocess.CalledProcessError):
            dump(index, options=["--index-sanity-check"])
