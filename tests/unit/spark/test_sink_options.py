"""What a write refuses where it is planned: options, settings of the producer, columns. Nothing is connected here."""

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from holdfast.client.errors import ConfigError
from holdfast.spark import sink
from holdfast.spark.write_options import write_options

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "orders"}
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


def schema(**columns: DataType) -> StructType:
    found = StructType()
    for name, kind in columns.items():
        found = found.add(name, kind)
    return found


# -- options -----------------------------------------------------------------------------------------------------------


def test_a_write_is_idempotent_acknowledged_by_all_and_partitioned_like_java() -> None:
    read = write_options(GIVEN)

    assert read.topic == "orders"
    settings = read.producer.librdkafka
    assert (settings["enable.idempotence"], settings["acks"]) == ("true", "all")
    assert settings["partitioner"] == "murmur2_random"
    assert (read.producer.delivery_timeout_s, read.producer.max_block_s) == (120.0, 60.0)
    assert read.producer.first_contact_s == 15.0


def test_what_the_user_sets_wins() -> None:
    given = {
        "kafka.enable.idempotence": "false",
        "kafka.acks": "1",
        "kafka.message.timeout.ms": "5000",
        "kafka.max.block.ms": "2500",
    }
    read = write_options(GIVEN | given)

    assert (read.producer.librdkafka["enable.idempotence"], read.producer.librdkafka["acks"]) == ("false", "1")
    assert (read.producer.delivery_timeout_s, read.producer.max_block_s) == (5.0, 2.5)
    assert read.producer.first_contact_s == 2.5
    assert "max.block.ms" not in read.producer.librdkafka  # librdkafka does not know it


def test_options_have_no_case_and_those_of_spark_itself_are_let_by() -> None:
    read = write_options(
        {"KAFKA.Bootstrap.Servers": "h:1", "TOPIC": "T", "includeheaders": "TRUE", "checkpointLocation": "/c"}
    )

    assert read.topic == "T"
    assert read.producer.librdkafka["bootstrap.servers"] == "h:1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka.bootstrap.servers": ""}, "option kafka.bootstrap.servers is missing"),
        ({"topik": "x"}, "unknown option 'topik': did you mean 'topic'?"),
        ({"topic": " "}, "option topic is empty"),
        ({"includeHeaders": "perhaps"}, "includeHeaders is 'perhaps'"),
        (
            {"kafka.compresion.type": "lz4"},
            "unknown option 'kafka.compresion.type': did you mean 'kafka.compression.type'?",
        ),
        ({"kafka.max.request.size": "1"}, "it is Java's, and here it is kafka.message.max.bytes"),
        (
            {"kafka.quux": "1"},
            "unknown option 'kafka.quux': options that begin with kafka. are settings of librdkafka's",
        ),
        ({"kafka.compression.type": "rar"}, 'option kafka.compression.type cannot be used: Invalid value "rar"'),
        ({"kafka.linger.ms": "99999999"}, "option kafka.linger.ms cannot be used"),
        ({"kafka.delivery.timeout.ms": "0"}, "option kafka.delivery.timeout.ms is '0'"),
        ({"kafka.delivery.timeout.ms": "9", "kafka.message.timeout.ms": "9"}, "is given twice"),
        ({"kafka.max.block.ms": "soon"}, "option kafka.max.block.ms is 'soon'"),
        ({"kafka.acks": "1"}, "do not work together: acks must be set to all when enable.idempotence is true"),
        ({"kafka.transactional.id": "t"}, "option kafka.transactional.id cannot be set: each task writes for itself"),
        ({"kafka.group.id": "g"}, "option kafka.group.id cannot be set: a sink is in no group"),
        ({"kafka.value.serializer": "x"}, "option kafka.value.serializer cannot be set"),
        ({"kafka.error_cb": "x"}, "option kafka.error_cb cannot be set: an option is text"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        write_options(GIVEN | given)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_certificates_that_only_the_executors_have_are_no_mistake() -> None:
    guarded = {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "/only/on/the/executors.pem"}

    assert write_options(GIVEN | guarded).producer.librdkafka["ssl.ca.location"] == "/only/on/the/executors.pem"


def test_a_secret_is_in_no_representation() -> None:
    options = write_options(GIVEN | {"kafka.sasl.password": "hunter2"})

    assert options.producer.librdkafka["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(options)


# -- columns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [StringType(), BinaryType()])
def test_columns_as_in_sparks_own_sink_are_taken(kind: DataType) -> None:
    columns = schema(key=kind, value=kind, topic=StringType(), partition=IntegerType(), headers=HEADERS)

    sink.check_columns(columns, topic=None)


def test_columns_that_are_not_written_do_not_matter() -> None:
    sink.check_columns(schema(value=StringType(), offset=LongType(), timestamp=TimestampType()), topic="orders")


def test_the_option_topic_has_priority_over_the_column() -> None:
    columns = schema(value=StringType(), topic=LongType())

    sink.check_columns(columns, topic="orders")
    with pytest.raises(ConfigError, match=r"column topic is bigint, but must be string: write CAST\(topic AS STRING\)"):
        sink.check_columns(columns, topic=None)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (schema(key=StringType()), "there is no column value, which is the one that is written"),
        (schema(Value=StringType()), "(the column Value is not it: write Value AS value)"),
        (schema(value=LongType()), "column value is bigint, but must be string or binary: write CAST(value AS STRING)"),
        (schema(value=StringType(), key=IntegerType()), "column key is int, but must be string or binary"),
        (
            schema(value=StringType(), partition=LongType()),
            "column partition is bigint, but must be int: write CAST(partition AS INT) AS partition",
        ),
        (
            schema(value=StringType(), headers=MapType(StringType(), StringType())),
            "column headers is map<string,string>, but must be array<struct<key:string,value:binary>>",
        ),
        (schema(value=StringType()).add("value", StringType()), "there are 2 columns value"),
    ],
)
def test_a_wrong_column_is_refused_with_what_to_write_instead(columns: StructType, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sink.check_columns(columns, topic="orders")

    assert said in str(refused.value)


def test_without_option_and_column_the_topic_is_missing() -> None:
    with pytest.raises(ConfigError, match="where to write is missing: give the option topic, or a column topic"):
        sink.check_columns(schema(value=StringType()), topic=None)


# -- writers -----------------------------------------------------------------------------------------------------------


def test_a_batch_cannot_overwrite_a_topic_while_a_stream_may_write_its_whole_result() -> None:
    columns = schema(value=StringType())

    with pytest.raises(ConfigError, match=r'mode\("overwrite"\) is not possible.*mode\("append"\)'):
        sink.batch_writer(GIVEN, columns, overwrite=True)
    sink.batch_writer(GIVEN, columns, overwrite=False)
    sink.stream_writer(GIVEN, columns, overwrite=True)


def test_a_writer_travels_to_the_executors() -> None:
    writer = sink.stream_writer(GIVEN, schema(value=StringType()), overwrite=False)

    again = pickle.loads(pickle.dumps(writer))

    assert again.__dict__ == writer.__dict__


def test_an_unsupported_guarantee_is_reported_with_its_consequence(caplog: pytest.LogCaptureFixture) -> None:
    writer = sink.stream_writer(GIVEN, schema(value=StringType()), overwrite=False)

    writer.abort([sink.WriteResult(40, 400), None, sink.WriteResult(2, 20)], 7)

    assert "batch 7 was aborted: 42 records of 2 tasks (420 bytes)" in caplog.text
    assert "stay there" in caplog.text
