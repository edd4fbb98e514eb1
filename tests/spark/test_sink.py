"""Writing with `format("holdfast")`: what arrives on Holdfast and on Apache Kafka, and what is reported if it does
not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.client_compat.client import DEADLINE_S, Record, Stored, read
from tests.client_compat.servers import Server
from tests.groups.topics import CLIENT, make_topic
from tests.holdfast_client.secured_apache_kafka import USER
from tests.holdfast_client.secured_kafka import SecuredKafka, secured_kafka
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

HEADERS = "array(named_struct('key', 'h', 'value', CAST('1' AS BINARY)), named_struct('key', 'n', 'value', NULL))"


def stored(server: Server, topic: str, partition: int) -> list[Stored]:
    _, end = CLIENT.watermarks(server.bootstrap, topic, partition)
    return read(CLIENT, server.bootstrap, topic, end, partition)


def values(server: Server, topic: str, partitions: int) -> list[bytes | None]:
    return [record.value for partition in range(partitions) for record in stored(server, topic, partition)]


def write(rows: Any, server: Server, mode: str = "append", **options: str) -> None:
    named = {name.replace("_", "."): value for name, value in options.items()}
    rows.write.format("holdfast").mode(mode).options(**{"kafka.bootstrap.servers": server.bootstrap} | named).save()


# -- what arrives ------------------------------------------------------------------------------------------------------


def test_a_batch_writes_every_column_that_sparks_own_sink_writes(spark: Any, server: Server, topic: str) -> None:
    # given two topics, and rows that name them, with columns that are nobody's business
    other = f"{topic}-other"
    make_topic(server, topic, 3)
    make_topic(server, other, 1)
    rows = spark.range(100).selectExpr(
        f"IF(id < 90, '{topic}', '{other}') AS topic",
        "IF(id < 90, CAST(id % 3 AS INT), NULL) AS partition",
        "IF(id = 0, NULL, CAST(id AS STRING)) AS key",
        "CAST(CONCAT('v', id) AS BINARY) AS value",
        f"IF(id = 1, NULL, {HEADERS}) AS headers",
        "id",
        "current_timestamp() AS timestamp",
    )

    # when they are written
    write(rows, server)

    # then each record is where its row said
    headers = (("h", b"1"), ("n", None))
    for partition in range(3):
        expected = [
            (b"v%d" % number, b"%d" % number if number else None, () if number == 1 else headers)
            for number in range(90)
            if number % 3 == partition
        ]
        got = [(one.value, one.key, one.headers) for one in stored(server, topic, partition)]
        assert sorted(got) == sorted(expected)
    assert sorted(values(server, other, 1), key=str) == sorted((b"v%d" % number for number in range(90, 100)), key=str)


def test_a_stream_copies_a_topic_and_a_restart_of_it_adds_nothing(
    spark: Any, server: Server, topic: str, group: str, tmp_path: Path
) -> None:
    # given a topic and a query that copies it
    copy = f"{topic}-copy"
    make_topic(server, topic, 4)
    make_topic(server, copy, 4)
    produced = [[b"%d-%d" % (partition, number) for number in range(200)] for partition in range(4)]
    for partition, of in enumerate(produced):
        CLIENT.produce(server.bootstrap, topic, [Record(value) for value in of], partition)

    def run(as_group: str) -> None:
        source = {"kafka.bootstrap.servers": server.bootstrap, "kafka.group.id": as_group, "subscribe": topic}
        rows = spark.readStream.format("holdfast").options(**source, startingOffsets="earliest").load()
        writer = rows.select("key", "value", "partition").writeStream.format("holdfast").trigger(availableNow=True)
        wanted = {"kafka.bootstrap.servers": server.bootstrap, "topic": copy}
        query = writer.options(**wanted, checkpointLocation=str(tmp_path / as_group)).start()
        assert query.awaitTermination(DEADLINE_S)

    # when it has run, and run again
    run(group)
    run(group)

    # then the copy is the topic, and only a query that begins again adds to it
    assert [[one.value for one in stored(server, copy, partition)] for partition in range(4)] == produced
    run(f"{group}-again")
    assert len(values(server, copy, 4)) == 2 * 4 * 200


def set_largest(server: Server, topic: str, size: str) -> None:
    """Kafka's controller says so before its broker has heard of it."""
    CLIENT.set_topic_config(server.bootstrap, topic, "max.message.bytes", size)
    eventually(lambda: CLIENT.topic_configs(server.bootstrap, topic)["max.message.bytes"] == size, "the new size")


def test_a_batch_that_failed_and_is_run_again_writes_again_what_it_had_written(
    spark: Any, server: Server, topic: str, tmp_path: Path
) -> None:
    # given a stream with one row that its topic takes, and one that is too large for it
    make_topic(server, topic, 2)
    set_largest(server, topic, "5000")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "0").write_text("small\n" + "x" * 50_000 + "\n")

    def run() -> PySparkException | None:
        lines = spark.readStream.format("text").load(str(tmp_path / "rows"))
        rows = lines.selectExpr("value", "CAST(length(value) > 5 AS INT) AS partition")
        options = {"kafka.bootstrap.servers": server.bootstrap, "topic": topic}
        writer = rows.writeStream.format("holdfast").options(**options, checkpointLocation=str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(DEADLINE_S), "the query has not ended"
        except PySparkException as error:
            return error
        return None

    # when its batch fails, the topic is repaired, and the batch is run again, and once more for nothing
    failed = run()
    set_largest(server, topic, "100000")
    succeeded, idle = run(), run()

    # then nothing is lost, and only what had been written before the failure is there twice
    assert f"topic {topic}: a record is larger than may be sent or stored" in str(failed)
    assert (succeeded, idle) == (None, None)
    assert [one.value for one in stored(server, topic, 0)] == [b"small", b"small"]
    assert [one.value for one in stored(server, topic, 1)] == [b"x" * 50_000]


# -- what is reported to the user --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def holdfast_topic(quick_holdfast: HoldfastBroker) -> str:
    return make_topic(quick_holdfast, "result", 1)


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        (
            "id AS value",
            {},
            "column value is bigint, but must be string or binary: write CAST(value AS STRING) AS value",
        ),
        (
            "'v' AS value",
            {"kafka_linger_mss": "1"},
            "unknown option 'kafka.linger.mss': did you mean 'kafka.linger.ms'?",
        ),
        ("'v' AS value", {"mode": "overwrite"}, 'mode("overwrite") is not possible'),
        (
            "'v' AS value; CAST(NULL AS STRING) AS topic",
            {"topic": ""},
            "the column topic is null in a row: filter such rows out, or give the option topic for all records",
        ),
        (
            "repeat('x', 2000000) AS value",
            {},
            "topic result: a record of 2000000 bytes is larger than may be sent or stored",
        ),
        (
            "'v' AS value",
            {"kafka_bootstrap_servers": "127.0.0.1:1", "kafka_max_block_ms": "500"},
            "option kafka.bootstrap.servers, 127.0.0.1:1, answered within 0.5 s (option kafka.max.block.ms)",
        ),
    ],
)
def test_a_write_that_cannot_succeed_is_reported_in_one_sentence(
    spark: Any,
    quick_holdfast: HoldfastBroker,
    holdfast_topic: str,
    row: str,
    options: Mapping[str, str],
    said: str,
) -> None:
    given = {name: value for name, value in ({"topic": holdfast_topic} | dict(options)).items() if value}

    with pytest.raises(Exception) as failed:  # Spark has several for it
        write(spark.range(1).selectExpr(*row.split("; ")), quick_holdfast, **given)

    result = str(failed.value)
    assert said in result
    # Spark's own way to the sink is a few frames; ours is at most two.
    assert result.count("src/holdfast/") + result.count("site-packages/holdfast/") <= 4


@pytest.fixture(scope="module")
def world(apache_kafka_distribution: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("guarded")) as made:
        yield made


def test_a_password_that_is_not_accepted_ends_the_task_at_once(spark: Any, world: SecuredKafka, topic: str) -> None:
    make_topic(world.kafka, topic, 1)
    guarded = {
        "kafka.bootstrap.servers": world.kafka.secured("SASL"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": USER,
        "topic": topic,
    }
    rows = spark.range(1).selectExpr("'v' AS value").write.format("holdfast").mode("append")

    with pytest.raises(Exception) as failed:
        rows.options(**guarded, **{"kafka.sasl.password": "wrong"}).save()
    rows.options(**guarded, **{"kafka.sasl.password": "alice-secret, with=signs"}).save()

    assert "do not accept each other, see options kafka.security.protocol, kafka.sasl.*" in str(failed.value)
    assert values(world.kafka, topic, 1) == [b"v"]
