"""kafka-producer-perf-test and kafka-consumer-perf-test, as Apache Kafka ships them, on Holdfast.

They say nothing on Holdfast that they do not say on Apache Kafka.
"""

import csv
import re
import subprocess
import uuid
from dataclasses import dataclass

import pytest

from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.servers import Server
from tests.support.apache_kafka import ApacheKafka
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import kafka_distribution

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
JVM_OPTIONS = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog.level=WARN")
CLIENT = ConfluentClient()
RECORDS = 30_000
RECORD_BYTES = 200
PATIENCE_S = 180

_LOGGED = re.compile(r"^\[[^]]*] (?:WARN|ERROR|FATAL) ")
_OF_ONE_RUN = re.compile(r"[0-9a-f]{8,}|\d+")
"""Ports, ids and names that no two runs have in common."""


@dataclass(frozen=True)
class Said:
    printed: str
    complaints: frozenset[str]


def run(main_class: str, *arguments: str) -> Said:
    """A tool to its end, which must be a good one; and what its client logged as worse than information."""
    command = kafka_distribution().command(main_class, *arguments, jvm_options=JVM_OPTIONS)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{main_class} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}"
    logged = [line for line in done.stderr.splitlines() if _LOGGED.match(line)]
    return Said(done.stdout, frozenset(_OF_ONE_RUN.sub("…", line) for line in logged))


def produce(server: Server, topic: str, codec: str) -> Said:
    """To a topic that is not there yet: the client complains of that, so that we see that we see complaints."""
    said = run(
        PRODUCER, "--topic", topic, "--num-records", str(RECORDS), "--record-size", str(RECORD_BYTES),
        "--throughput", "-1", "--bootstrap-server", server.bootstrap,
        "--command-property", f"compression.type={codec}", "acks=all",
    )  # fmt: skip
    assert f"{RECORDS} records sent" in said.printed
    return said


def consume(server: Server, topic: str) -> Said:
    return run(
        CONSUMER, "--bootstrap-server", server.bootstrap, "--topic", topic, "--group", f"perf-{uuid.uuid4().hex}",
        "--num-records", str(RECORDS), "--timeout", "90000",
    )  # fmt: skip


def stored(server: Server, topic: str) -> int:
    low, high = CLIENT.watermarks(server.bootstrap, topic)
    return high - low


def consumed(said: Said) -> int:
    heads, numbers = list(csv.reader(said.printed.splitlines(), skipinitialspace=True))[-2:]
    return int(dict(zip(heads, numbers, strict=True))["data.consumed.in.nMsg"])


def test_they_write_and_read_as_many_records_as_they_are_asked_for(
    holdfast: HoldfastBroker, apache_kafka: ApacheKafka, topic: str
) -> None:
    on_kafka = produce(apache_kafka, topic, "lz4"), consume(apache_kafka, topic)
    on_holdfast = produce(holdfast, topic, "lz4"), consume(holdfast, topic)

    for server, (_, reading) in ((apache_kafka, on_kafka), (holdfast, on_holdfast)):
        assert stored(server, topic) == RECORDS
        assert consumed(reading) == RECORDS
    assert any("UNKNOWN_TOPIC_OR_PARTITION" in line for line in on_kafka[0].complaints)
    for ours, kafkas in zip(on_holdfast, on_kafka, strict=True):
        assert ours.complaints <= kafkas.complaints
