"""The options of `format("holdfast")`: what they become, and each mistake with its sentence."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from holdfast.client.errors import ConfigError
from holdfast.client.offsets import EARLIEST, LATEST
from holdfast.spark.options import NewCheckpoint, ReadOptions, batch_options, stream_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
BATCH = {**SERVERS, "subscribe": "orders"}
STREAM = {**BATCH, "kafka.group.id": "billing"}


def stream(**more: Any) -> ReadOptions:
    return stream_options({**STREAM, **more})


def test_what_a_streaming_query_has_if_nothing_is_said() -> None:
    options = stream()

    assert options.topics is not None and options.topics.names == {"orders"}
    assert options.starting.all_partitions == LATEST
    assert (options.members, options.revoke_timeout_s) == (1, 10.0)
    assert options.max_offsets_per_trigger is None and options.min_partitions is None
    assert options.min_offsets_per_trigger is None and options.max_trigger_delay_s == 900
    assert options.max_records_per_partition is None and options.new_checkpoint is None
    assert options.fail_on_data_loss and not options.include_headers
    (config,) = options.consumer_configs()
    assert [one.name for one in config.assignors] == ["cooperative-sticky", "range"]
    assert config.membership.session_timeout_ms == 60_000


def test_names_are_taken_without_regard_to_case() -> None:
    """As Spark gives them."""
    options = stream_options(
        {
            "KAFKA.BOOTSTRAP.SERVERS": "localhost:9092",
            "kafka.Group.Id": "Billing",
            "SUBSCRIBE": "Orders, Returns",
            "startingoffsets": "EARLIEST",
            "maxOffsetsPERTrigger": "100",
            "MINoffsetsPerTrigger": "10",
            "maxtriggerdelay": "2h",
            "MaxRecordsPerPartition": "1000",
            "NEWCHECKPOINT": "StartingOFFSETS",
        }
    )

    assert options.group_id == "Billing"
    assert options.topics is not None and options.topics.names == {"Orders", "Returns"}
    assert options.starting.all_partitions == EARLIEST and options.max_offsets_per_trigger == 100
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_s) == (10, 7200)
    assert options.max_records_per_partition == 1000
    assert options.new_checkpoint is NewCheckpoint.STARTING_OFFSETS


def test_what_begins_with_kafka_is_passed_on() -> None:
    options = stream(
        **{"kafka.session.timeout.ms": "20000", "kafka.partition.assignment.strategy": "range", "kafka.client.id": "me"}
    )
    (config,) = options.consumer_configs()

    assert config.membership.session_timeout_ms == 20_000
    assert [one.name for one in config.assignors] == ["range"]
    assert config.network.client_id == "me"


def test_the_instance_ids_of_several_members_are_numbered() -> None:
    options = stream(members="3", **{"kafka.group.instance.id": "spark-1"})
    configs = options.consumer_configs()

    assert options.instance_ids == ["spark-1-thread-1", "spark-1-thread-2", "spark-1-thread-3"]
    assert [one.membership.group_instance_id for one in configs] == options.instance_ids
    assert len({id(one.assignors[0]) for one in configs}) == 3  # what an assignor remembers belongs to one member


def test_one_member_has_the_instance_id_as_given() -> None:
    assert stream(**{"kafka.group.instance.id": "spark-1"}).instance_ids == ["spark-1"]
    assert stream(members="2").instance_ids == []


def test_a_pattern_matches_whole_names_as_in_java() -> None:
    options = stream_options({**SERVERS, "kafka.group.id": "g", "subscribePattern": "orders-[0-9]+"})
    assert options.topics is not None
    (pattern,) = options.topics.patterns

    assert pattern.match("orders-12")
    assert not pattern.match("orders-12-old") and not pattern.match("old-orders-12")


def test_partitions_and_offsets_one_by_one() -> None:
    options = stream_options(
        {
            **SERVERS,
            "assign": '{"orders": [1, 0, 1], "returns": [2]}',
            "startingOffsets": '{"orders": {"0": 23, "1": -2}, "returns": {"2": -1}}',
        }
    )

    assert options.partitions == (("orders", 0), ("orders", 1), ("returns", 2))
    assert [options.starting.of(where) for where in options.partitions] == [23, EARLIEST, LATEST]
    with pytest.raises(ConfigError, match="startingOffsets has no offset for orders-7: name every partition"):
        options.starting.of(("orders", 7))


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("1.5 s", 1.5), ("2m", 120), ("1min", 60)])
def test_times_have_a_unit(text: str, seconds: float) -> None:
    assert stream(revokeTimeout=text).revoke_timeout_s == seconds


@pytest.mark.parametrize(("text", "seconds"), [("250", 0.25), ("15m", 900), ("1d", 86_400), ("500us", 0.0005)])
def test_a_trigger_delay_without_a_unit_is_in_milliseconds(text: str, seconds: float) -> None:
    """As in Spark's own source."""
    assert stream(maxTriggerDelay=text).max_trigger_delay_s == seconds


def test_a_batch_needs_no_group() -> None:
    options = batch_options({**BATCH, "endingOffsets": '{"orders": {"0": 50}}'})

    assert options.group_id is None and options.starting.all_partitions == EARLIEST
    assert options.ending.of(("orders", 0)) == 50


def test_one_timestamp_takes_precedence_over_timestamps_and_offsets() -> None:
    given = {
        "startingOffsets": "latest",
        "startingOffsetsByTimestamp": '{"orders": {"0": 50}}',
        "startingTimestamp": " 1700000000000 ",
        "endingOffsets": "earliest",
        "endingOffsetsByTimestamp": '{"orders": {"0": 60}}',
        "endingTimestamp": "1700000001000",
    }

    def applied(*left_out: str) -> list[tuple[str, int, bool]]:
        options = batch_options({**BATCH, **{name: value for name, value in given.items() if name not in left_out}})
        return [(one.name, one.of(("orders", 0)), one.is_timestamp) for one in (options.starting, options.ending)]

    assert applied() == [("startingTimestamp", 1700000000000, True), ("endingTimestamp", 1700000001000, True)]
    assert applied("startingTimestamp", "endingTimestamp") == [
        ("startingOffsetsByTimestamp", 50, True),
        ("endingOffsetsByTimestamp", 60, True),
    ]


def test_a_partition_without_later_records_has_a_strategy_at_the_start_alone() -> None:
    def latest(**more: str) -> tuple[bool, bool]:
        options = batch_options({**BATCH, "startingTimestamp": "5", "endingTimestamp": "6", **more})
        return options.starting.latest_without_match, options.ending.latest_without_match

    assert latest() == latest(startingOffsetsByTimestampStrategy="ERROR") == (False, True)
    assert latest(startingOffsetsByTimestampStrategy="Latest") == (True, True)


def test_every_partition_needs_a_timestamp() -> None:
    options = stream(startingOffsetsByTimestamp='{"orders": {"0": 50}}')

    with pytest.raises(ConfigError, match="startingOffsetsByTimestamp has no timestamp for orders-1: name every"):
        options.starting.of(("orders", 1))


def test_options_of_sparks_source_that_change_no_row_are_taken_and_named() -> None:
    given = {"kafkaConsumer.pollTimeoutMs": "512", "fetchOffset.numRetries": "3", "fetchoffset.retryintervalms": "10"}

    assert list(stream(**given).ignored) == list(batch_options({**BATCH, **given}).ignored)
    assert stream(**given).ignored["fetchOffset.numRetries"].endswith("until kafka.default.api.timeout.ms has passed")
    assert stream().ignored == {}


def test_options_travel_to_the_executors_and_keep_their_secrets() -> None:
    options = stream(**{"kafka.sasl.password": "hush", "kafka.sasl.username": "me"})

    shipped = pickle.loads(pickle.dumps(options))

    assert shipped == options and shipped.kafka["sasl.password"] == "hush"
    assert "hush" not in repr(options)


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "no servers": ({"subscribe": "t", "kafka.group.id": "g"}, "option kafka.bootstrap.servers is missing"),
    "no group": (BATCH, "option kafka.group.id is missing: the query is a member of a group"),
    "empty group": ({**BATCH, "kafka.group.id": ""}, "option kafka.group.id is missing"),
    "no topics": ({**SERVERS, "kafka.group.id": "g"}, "exactly one of the options subscribe, .* none is given"),
    "two kinds of topics": ({**STREAM, "assign": '{"t": [0]}'}, "subscribe and assign are given"),
    "empty topics": ({**STREAM, "subscribe": " , "}, "option subscribe is empty"),
    "a bad pattern": ({**SERVERS, "kafka.group.id": "g", "subscribePattern": "a("}, "not a regular expression"),
    "a typo": ({**STREAM, "startingOfsets": "earliest"}, "unknown option 'startingOfsets': did you mean 'startingOff"),
    "no prefix": ({**STREAM, "group.id": "g"}, "unknown option 'group.id': did you mean 'kafka.group.id'"),
    "nonsense": ({**STREAM, "zzz": "1"}, "unknown option 'zzz': there are assign, .* and kafka"),
    "a typo of Kafka's": ({**STREAM, "kafka.sesion.timeout.ms": "9"}, "'kafka.'.*'sesion.timeout.ms'.*'session.timeo"),
    "a number of Kafka's": ({**STREAM, "kafka.session.timeout.ms": "soon"}, "'kafka.'.*session.timeout.ms is 'soon'"),
    "an assignor": ({**STREAM, "kafka.partition.assignment.strategy": "best"}, "partition.assignment.strategy.*best"),
    "ending": ({**STREAM, "endingOffsets": "latest"}, "option endingOffsets is not for a streaming query"),
    "ending at a time": ({**STREAM, "endingTimestamp": "5"}, "option endingTimestamp is not for a streaming query"),
    "ending at times": (
        {**STREAM, "endingOffsetsByTimestamp": "{}"},
        "option endingOffsetsByTimestamp is not for a streaming query",
    ),
    "a prefix of groups": (
        {**STREAM, "groupidprefix": "g"},
        "option groupidprefix is not supported: a streaming query is a member of the group that kafka.group.id names",
    ),
    "a timestamp": (
        {**STREAM, "startingTimestamp": "2026-11-18"},
        "option startingTimestamp is '2026-11-18'; it is one time for all partitions, in milliseconds since 1970",
    ),
    "a negative timestamp": ({**STREAM, "startingTimestamp": "-1"}, "option startingTimestamp is '-1'; it is one time"),
    "timestamps": (
        {**STREAM, "startingOffsetsByTimestamp": "earliest"},
        "option startingOffsetsByTimestamp is 'earliest'; it can be like",
    ),
    "negative timestamps": (
        {**STREAM, "startingOffsetsByTimestamp": '{"t": {"0": -2}}'},
        "startingOffsetsByTimestamp has -2 for t-0; it is a time in milliseconds since 1970",
    ),
    "a strategy": (
        {**STREAM, "startingOffsetsByTimestampStrategy": "earliest"},
        "startingOffsetsByTimestampStrategy is 'earliest'; it can be error, latest",
    ),
    "a minimum above the maximum": (
        {**STREAM, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
        "minOffsetsPerTrigger is 6, and maxOffsetsPerTrigger 5: no batch can have both",
    ),
    "a minimum": ({**STREAM, "minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger is '0'; it must be a whole number"),
    "a delay": ({**STREAM, "maxTriggerDelay": "soon"}, "option maxTriggerDelay is 'soon'; it is a time with its unit"),
    "records of a task": (
        {**STREAM, "maxRecordsPerPartition": "-1"},
        "maxRecordsPerPartition is '-1'; it must be a wh",
    ),
    "a new checkpoint": (
        {**STREAM, "newCheckpoint": "earliest"},
        "newCheckpoint is 'earliest'; it can be group, startingOffsets, fail",
    ),
    "a new checkpoint without a start": (
        {**STREAM, "newCheckpoint": "startingOffsets"},
        "option newCheckpoint is startingOffsets, but none of startingTimestamp, .* is given: their default is latest",
    ),
    "a new checkpoint without a group": (
        {**SERVERS, "assign": '{"t": [0]}', "newCheckpoint": "group"},
        "option newCheckpoint needs kafka.group.id: without a group",
    ),
    "auto commit": ({**STREAM, "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit cannot be set: a batch"),
    "reset": ({**STREAM, "kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset cannot be set: startingOff"),
    "a start": (
        {**STREAM, "startingOffsets": "first"},
        "option startingOffsets is 'first'; it can be earliest, latest",
    ),
    "a start in JSON": ({**STREAM, "startingOffsets": '{"t": 5}'}, "option startingOffsets is .* it can be earliest"),
    "a negative start": ({**STREAM, "startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets has -3 for t-0; -2 is"),
    "a time": ({**STREAM, "revokeTimeout": "10"}, "option revokeTimeout is '10'; it is a time with its unit"),
    "members": ({**STREAM, "members": "0"}, "members is '0'; it must be a whole number from 1 to 1000"),
    "a limit": ({**STREAM, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'; it must be a whole number"),
    "a truth": ({**STREAM, "failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'; it must be true or false"),
    "assign": ({**SERVERS, "assign": "t-0"}, "option assign is 't-0'; it looks like"),
    "assign nothing": ({**SERVERS, "assign": "{}"}, "option assign names no partition"),
    "assign below nothing": ({**SERVERS, "assign": '{"t": [-1]}'}, "option assign"),
    "assign and an instance id": (
        {**SERVERS, "assign": '{"t": [0]}', "kafka.group.instance.id": "i"},
        "option kafka.group.instance.id needs `subscribe`",
    ),
    "assign and members": ({**SERVERS, "assign": '{"t": [0]}', "members": "2"}, "option members needs `subscribe`"),
    "assign and a typo of Kafka's": (
        {**SERVERS, "assign": '{"t": [0]}', "kafka.isolaton.level": "read_committed"},
        "'kafka.'.*'isolaton.level'",
    ),
    "assign and an isolation": (
        {**SERVERS, "assign": '{"t": [0]}', "kafka.isolation.level": "commited"},
        "'kafka.'.*isolation.level is 'commited'",
    ),
    "an instance id": ({**STREAM, "kafka.group.instance.id": "a b"}, "group.instance.id is 'a b'"),
    "a heartbeat": ({**STREAM, "kafka.heartbeat.interval.ms": "90000"}, "heartbeat.interval.ms is 90000"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_in_a_streaming_query_is_reported_in_one_sentence(case: str) -> None:
    options, sentence = WRONG[case]

    with pytest.raises(ConfigError, match=sentence) as reported:
        stream_options(options)
    assert "\n" not in str(reported.value)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is latest: a batch that begins at the end"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "endingOffsets cannot be earliest"),
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is not for a batch"),
        ({"minOffsetsPerTrigger": "5"}, "option minOffsetsPerTrigger is not for a batch"),
        ({"maxTriggerDelay": "5m"}, "option maxTriggerDelay is not for a batch"),
        ({"newCheckpoint": "group"}, "option newCheckpoint is not for a batch"),
        ({"groupIdPrefix": "g"}, "option groupIdPrefix is not supported: .* and a batch uses no group; remove it"),
        ({"endingTimestamp": "now"}, "option endingTimestamp is 'now'; it is one time for all partitions"),
        ({"members": "2"}, "option members is not for a batch"),
        ({"revokeTimeout": "2s"}, "option revokeTimeout is not for a batch"),
        ({"kafka.isolaton.level": "read_committed"}, "'kafka.'.*'isolaton.level'"),
    ],
)
def test_a_mistake_in_a_batch_is_reported_in_one_sentence(more: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        batch_options({**BATCH, **more})
