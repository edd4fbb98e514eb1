"""The Apache Kafka beside us runs, answers, and stores: without it no comparison means anything."""

import os
import shutil
import subprocess
import sys
import time
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import raw_wire
from tests.support.apache_kafka import ApacheKafka, ApacheKafkaFailed
from tests.support.kafka_distribution import REPOSITORY, kafka_tool

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

PRODUCE, FETCH = 0, 1

HOLD_A_BROKER = """
import time
from tests.support.apache_kafka import ApacheKafka
with ApacheKafka() as broker:
    print(broker.pid, broker.data_dir.parent, flush=True)
    time.sleep(120)
"""


def test_it_advertises_its_apis(apache_kafka: ApacheKafka) -> None:
    ranges = raw_wire.api_versions(apache_kafka.address)

    assert ranges[PRODUCE] == (0, 13)
    assert ranges[FETCH] == (4, 18)


def test_a_record_is_produced_and_consumed(apache_kafka: ApacheKafka) -> None:
    topic = create_topic(apache_kafka)

    produce(apache_kafka, topic, b"hello")

    assert read_one(apache_kafka, topic) == b"hello"


def test_its_tools_read_its_segments(apache_kafka: ApacheKafka) -> None:
    topic = create_topic(apache_kafka)
    produce(apache_kafka, topic, b"in the segment")
    segment = apache_kafka.data_dir / f"{topic}-0" / "00000000000000000000.log"

    dump = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", str(segment))

    assert "payload: in the segment" in dump


def test_a_restart_keeps_data_and_address() -> None:
    with ApacheKafka() as broker:
        topic = create_topic(broker)
        produce(broker, topic, b"kept")
        bootstrap, pid = broker.bootstrap, broker.pid

        broker.kill()
        broker.start()

        assert broker.pid != pid
        assert broker.bootstrap == bootstrap
        assert read_one(broker, topic) == b"kept"


def test_it_leaves_nothing_behind() -> None:
    with ApacheKafka() as broker:
        pid, directory = broker.pid, broker.data_dir.parent
        assert directory.exists()

    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_dies_with_a_killed_test_run() -> None:
    # given a test run with a broker of its own
    holder = subprocess.Popen([sys.executable, "-c", HOLD_A_BROKER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    pid_text, directory = holder.stdout.readline().split()

    # when the run is killed and can clean up nothing
    holder.kill()
    holder.wait()

    # then the kernel ends the broker
    try:
        assert ends_within(int(pid_text), seconds=60)
    finally:
        shutil.rmtree(directory)


def test_a_broker_that_cannot_start_shows_its_log() -> None:
    with pytest.raises(ApacheKafkaFailed, match=r"num\.network\.threads"):
        ApacheKafka({"num.network.threads": "none"}).__enter__()


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def create_topic(broker: ApacheKafka) -> str:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=30)
    return topic


def produce(broker: ApacheKafka, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def read_one(broker: ApacheKafka, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(30)
        assert message is not None, "nothing came within 30 s"
        assert message.error() is None, message.error()
        value: bytes | None = message.value()
        return value
    finally:
        consumer.close()
