"""Kafka's own tools for a cluster: they print of Holdfast what they print of an Apache Kafka of one node."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.wire.records import Record, encode_batch
from tests.broker.wire_client import WireClient
from tests.client_compat.confluent_client import wait_until_led
from tests.client_compat.servers import Server
from tests.support.apache_kafka import ApacheKafka
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.java_tools import JavaTools

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TOOLS = "org.apache.kafka.tools."
REASSIGN = f"{TOOLS}reassign.ReassignPartitionsCommand"
QUORUM = f"{TOOLS}MetadataQuorumCommand"
CONFIGS = "kafka.admin.ConfigCommand"
FEATURES = f"{TOOLS}FeatureCommand"
TIMESTAMP = 1_700_000_000_000


@pytest.fixture(scope="module")
def tools(apache_kafka: ApacheKafka) -> Iterator[JavaTools]:  # skips, or fails in CI, without Kafka
    with JavaTools() as started:
        yield started


@pytest.fixture(scope="module")
def topic(apache_kafka: ApacheKafka, holdfast: HoldfastBroker) -> str:
    """On both, with a record of an idempotent producer."""
    name = f"tools-{uuid.uuid4().hex[:8]}"
    records = encode_batch([Record(0, TIMESTAMP, b"k", b"v")], producer_id=77, producer_epoch=3, base_sequence=5)
    for server in (apache_kafka, holdfast):
        with WireClient(server.address) as client:
            client.create_topic(name, 2, retention_ms="-1")
            wait_until_led(server.bootstrap, name, 2)
            assert client.produce(name, records).error_code == 0
    return name


def normalised(printed: str) -> list[str]:
    """Without what no two brokers have in common."""
    printed = re.sub(r'"(log_dirs|logDir)":(\[?)"[^"]*"', r'"\1":\2"a directory"', printed)
    printed = re.sub(r"ClusterId: .*", "ClusterId: an id", printed)
    printed = re.sub(r"\b\d{13}\b", "a timestamp", printed)
    return [line.strip() for line in printed.splitlines() if line.strip() and not line.startswith("\tat ")]


def plan(path: Path, topic: str, replicas: list[int]) -> str:
    partitions = [{"topic": topic, "partition": index, "replicas": replicas} for index in range(2)]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def test_the_tools_print_the_same_of_both(
    tools: JavaTools, apache_kafka: ApacheKafka, holdfast: HoldfastBroker, topic: str, tmp_path: Path
) -> None:
    same = plan(tmp_path / "same.json", topic, [1])
    other = plan(tmp_path / "other.json", topic, [2])
    commands = {
        (f"{TOOLS}LogDirsCommand", "--describe", "--topic-list", topic): '"size":70',
        (REASSIGN, "--list"): "No partition reassignments found.",
        (REASSIGN, "--execute", "--reassignment-json-file", same): "Successfully started partition reassignments",
        (REASSIGN, "--verify", "--reassignment-json-file", same): f"Reassignment of partition {topic}-1 is completed.",
        (REASSIGN, "--cancel", "--reassignment-json-file", same): "None of the specified partition reassignments",
        (REASSIGN, "--execute", "--reassignment-json-file", other): "Unknown broker id 2",
        (
            f"{TOOLS}LeaderElectionCommand",
            *("--election-type", "preferred", "--topic", topic, "--partition", "1"),
        ): f"Valid replica already elected for partitions {topic}-1",
        (f"{TOOLS}LeaderElectionCommand", "--election-type", "unclean", "--all-topic-partitions"): "",
        (f"{TOOLS}TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0"): "77",
        (FEATURES, "upgrade", "--feature", "nope=1"): "Local controller 1 does not support this feature.",
        (CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", topic): "retention.ms=-1",
        (CONFIGS, "--describe", "--entity-type", "client-metrics"): "",
    }
    for (tool, *arguments), expected in commands.items():
        done = [tools.run(tool, "--bootstrap-server", one.bootstrap, *arguments) for one in (apache_kafka, holdfast)]

        kafkas, ours = ((one.code, normalised(one.printed)) for one in done)
        assert ours == kafkas, f"{tool} {arguments}"
        assert expected in done[1].printed


@pytest.mark.parametrize(("which", "server_name"), [("kafka", "apache_kafka"), ("ours", "holdfast")])
def test_the_quorum_is_one_node(tools: JavaTools, which: str, server_name: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(server_name)

    def describe(what: str) -> list[str]:
        done = tools.run(QUORUM, "--bootstrap-server", server.bootstrap, "describe", what)
        assert done.code == 0, done.printed
        return normalised(done.printed)

    status = dict(line.split(":", 1) for line in describe("--status"))
    found = {name: value.strip() for name, value in status.items()}
    assert (found["LeaderId"], found["MaxFollowerLag"], found["CurrentObservers"]) == ("1", "0", "[]")
    (voter,) = json.loads(found["CurrentVoters"])
    assert voter["id"] == 1
    # Kafka has a metadata log and a listener for controllers; Holdfast neither (docs/differences.md, 63).
    assert (found["HighWatermark"] == "-1") is (which == "ours")
    assert (voter["endpoints"] == [f"PLAINTEXT://{server.bootstrap}"]) is (which == "ours")

    _, row = describe("--replication")
    node, directory, end, lag, *_, role = row.split()
    assert (node, directory, lag, role) == ("1", "A" * 22, "0", "Leader")
    assert (end == "-1") is (which == "ours")


def test_configs_of_all_topics_and_brokers_are_found(tools: JavaTools, holdfast: HoldfastBroker, topic: str) -> None:
    def described(kind: str) -> str:
        done = tools.run(CONFIGS, "--bootstrap-server", holdfast.bootstrap, "--describe", "--entity-type", kind)
        assert done.code == 0, done.printed
        return done.printed

    assert f"Dynamic configs for topic {topic} are:" in described("topics")
    assert "Dynamic configs for broker 1 are:" in described("brokers")
    done = tools.run(FEATURES, "--bootstrap-server", holdfast.bootstrap, "describe")
    assert (done.code, done.printed.strip()) == (0, "")
