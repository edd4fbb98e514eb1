"""What goes wrong is one sentence that names the option and what to do, and no stack of Python's."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import AnalysisException, PySparkException

from holdfast.spark.first_contact import FIRST_CONTACT_MS
from tests.client_compat.servers import Server
from tests.groups.topics import make_topic, produce
from tests.holdfast_client.secured_apache_kafka import PASSWORD
from tests.holdfast_client.secured_kafka import SecuredKafka, credentials, secured_kafka
from tests.spark.conftest import StartPlain, StartQuery
from tests.spark.streaming_queries import StreamQuery, await_assignments, one_sentence

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NOW = {"availableNow": True}
START_SLACK_S = 8.0
"""For the start of the query: Spark starts a Python process for its source first."""
GOOD = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "orders"}


BATCH = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}


@pytest.mark.parametrize(
    ("how", "options", "said"),
    [
        ("readStream", GOOD | {"maxOffsetPerTriger": "1"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ("readStream", GOOD | {"startingOffsets": '{"orders": [3]}'}, "earliest, latest, or like"),
        ("readStream", BATCH | {"members": "2"}, "option kafka.group.id is missing"),
        ("read", BATCH | {"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
    ],
    ids=["unknown", "malformed", "missing", "batch"],
)
def test_a_mistake_is_reported_when_the_query_is_built(
    spark: Any, how: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException) as raised:
        getattr(spark, how).format("holdfast").options(**options).load()

    assert said in one_sentence(str(raised.value))


def test_a_missing_group_is_reported_when_the_query_starts(spark: Any, tmp_path: Path) -> None:
    """Spark does not say that it is a stream before that, and a batch needs no group."""
    query = StreamQuery(spark, GOOD | {"kafka.group.id": None}, tmp_path)
    query.start()
    refusal(query, "option kafka.group.id is missing", "give the name of the group")


def refusal(query: StreamQuery, *words: str) -> str:
    """The one sentence that a query fails with; it has these words."""
    reported = one_sentence(query.error)
    print(reported)
    for one in words:
        assert one in reported
    return reported


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that nobody listens on, and nobody else can."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


def test_a_broker_that_cannot_be_reached_is_reported_soon(spark: Any, tmp_path: Path, nowhere: str) -> None:
    query = StreamQuery(spark, GOOD | {"kafka.bootstrap.servers": nowhere}, tmp_path)
    query.start()
    started = time.monotonic()

    refusal(query, nowhere, "kafka.bootstrap.servers")

    assert time.monotonic() - started < FIRST_CONTACT_MS / 1000 + START_SLACK_S


def test_a_topic_that_does_not_exist(start_query: StartQuery, topic: str) -> None:
    refusal(start_query(), topic, "subscribe")


def test_an_instance_id_that_another_query_takes(
    server: Server, start_query: StartQuery, topic: str, group: str
) -> None:
    # given
    make_topic(server, topic)
    older = start_query(**{"kafka.group.instance.id": "billing"})
    older.await_that(lambda: older.finished, "its first batch")

    # when
    younger = start_query(**{"kafka.group.instance.id": "billing"})

    # then
    refusal(older, "'billing'", "group.instance.id", "The instance id is held by member")
    produce(server, topic, 2)
    younger.await_rows(8)


def test_a_group_that_speaks_another_strategy(
    server: Server, start_query: StartQuery, start_plain: StartPlain, topic: str, group: str
) -> None:
    # given
    make_topic(server, topic)
    start_plain(partition_assignment_strategy="roundrobin", client_id="plain")
    await_assignments(server, group, [4])

    # then a query with another protocol gets an error
    refusal(start_query(), "INCONSISTENT_GROUP_PROTOCOL", "kafka.partition.assignment.strategy")

    # and one that speaks it too has its assignment
    start_query(**{"kafka.partition.assignment.strategy": "roundrobin"})
    await_assignments(server, group, [2, 2])


def truncate(server: Server, topic: str, offset: int) -> None:
    """Delete what the first partition has before this offset."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    (done,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    assert done.result(30).low_watermark == offset


def test_records_that_are_gone_before_they_were_read(
    server: Server, start_query: StartQuery, topic: str, group: str
) -> None:
    # given a query that has read five records when the next seven are deleted
    make_topic(server, topic, 1)
    produce(server, topic, 5, partitions=1)
    query = start_query(trigger=NOW)
    query.to_its_end()
    produce(server, topic, 15, first=5, partitions=1)
    truncate(server, topic, 12)

    # then it fails
    query.start(NOW)
    refusal(query, f"{topic}-0 begins at 12", "had read up to 5", "failOnDataLoss=false")

    # and goes on without them if it is asked to
    query.options["failOnDataLoss"] = False
    query.start(NOW)
    query.to_its_end()
    assert query.records[5:] == [(0, offset) for offset in range(12, 20)]


def test_offsets_behind_the_end(server: Server, start_query: StartQuery, topic: str, group: str) -> None:
    # given
    make_topic(server, topic, 1)
    produce(server, topic, 5, partitions=1)
    beyond = json.dumps({topic: {"0": 100}})

    # then it fails
    query = start_query(startingOffsets=beyond)
    refusal(query, f"{topic}-0 ends at 5", "failOnDataLoss=false")

    # and goes on at the end if it is asked to
    query.options["failOnDataLoss"] = False
    query.start()
    query.await_stored(server, topic, 5, partitions=1)
    produce(server, topic, 2, first=5, partitions=1)
    query.await_rows(2)
    assert query.records == [(0, 5), (0, 6)]


@pytest.mark.parametrize("starting", [0, 100], ids=["before-the-beginning", "behind-the-end"])
def test_a_batch_out_of_range(spark: Any, server: Server, topic: str, starting: int) -> None:
    # given
    make_topic(server, topic, 1)
    produce(server, topic, 10, partitions=1)
    truncate(server, topic, 4)
    options = {
        "kafka.bootstrap.servers": server.bootstrap,
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {"0": starting}}),
    }

    # then
    with pytest.raises(PySparkException) as raised:
        spark.read.format("holdfast").options(**options).load().collect()
    print(raised.value)
    assert "failOnDataLoss" in one_sentence(str(raised.value))
    found = spark.read.format("holdfast").options(**options, failOnDataLoss="false").load().collect()
    assert [row.offset for row in found] == (list(range(4, 10)) if starting == 0 else [])


def test_a_checkpoint_of_another_format(server: Server, start_query: StartQuery, topic: str) -> None:
    # given a checkpoint as Spark's own source for Kafka writes it
    make_topic(server, topic, 1)
    produce(server, topic, 5, partitions=1)
    query = start_query(trigger=NOW)
    query.to_its_end()
    for path in (query.checkpoint / "offsets").iterdir():
        if path.name.isdecimal():
            *head, _ = path.read_text().splitlines()
            path.write_text("\n".join([*head, json.dumps({topic: {"0": 5}})]))
        else:
            path.unlink()  # the checksum

    # then
    query.start(NOW)
    refusal(query, "checkpoint", "needs a checkpoint of its own")


@pytest.fixture(scope="module")
def guarded(apache_kafka_distribution: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("certificates")) as found:
        yield found


def test_wrong_credentials(spark: Any, guarded: SecuredKafka, tmp_path: Path, topic: str, group: str) -> None:
    # given
    make_topic(guarded.kafka, topic)
    expected = produce(guarded.kafka, topic, 5)
    given = guarded.config("SASL", **{"security.protocol": "SASL_PLAINTEXT"}, **credentials("SCRAM-SHA-512"))
    options = {f"kafka.{name}": value for name, value in given.items()}
    options |= {"kafka.group.id": group, "subscribe": topic, "kafka.sasl.password": "not-alices-secret"}

    # then it fails, and tells no secret
    query = StreamQuery(spark, options, tmp_path / "checkpoint")
    query.start(NOW)
    refusal(query, "SASL", "kafka.sasl.")
    assert "not-alices-secret" not in query.error

    # and with the right ones both the member and the executors are admitted
    query.options["kafka.sasl.password"] = PASSWORD
    query.start(NOW)
    query.to_its_end()
    assert sorted(query.records) == sorted(expected)
