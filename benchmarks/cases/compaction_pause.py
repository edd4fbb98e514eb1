"""A gigabyte is compacted: the longest wait of a producer and a consumer of the same partition meanwhile."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but not in __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.pace import Pace, Paced, keep_pace
from benchmarks.servers import Broker, both, settle
from benchmarks.steady import until
from benchmarks.tables import figure, paragraph, table, times
from benchmarks.wire import Wire, expect_none, request_frame
from holdfast.log.checkpoint import CLEANER_OFFSETS
from holdfast.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.headers import decode_response
from holdfast.wire.records import Record, encode_batch

NAME: Final = "compaction-pause"
COMPACTED: Final = "while it is compacted"
QUIET: Final = "the same load without"
RATE: Final = 1_000
RECORD_BYTES: Final = 1_000
BATCH_RECORDS: Final = 1_000
TIMES_EACH_KEY: Final = 10
SEGMENTS: Final = 10
BACKOFF_MS: Final = 1_000
_PRODUCE_VERSION: Final = 9
_PATIENCE_S: Final = 300.0
_PRODUCE_TIMEOUT_MS: Final = 30_000
_WARM_UP_RATE: Final = 4_000


def run(plan: Plan) -> Result:
    records, warm_up_seconds = plan.pick(full=1_000_000, quick=100_000), plan.pick(full=20, quick=2)
    cleaner = {"log.cleaner.backoff.ms": str(BACKOFF_MS)}
    rows: list[Row] = []
    with both(cleaner, cleaner) as brokers:
        for broker in brokers.values():
            with new_topic(broker, partitions=1) as topic:
                keep_pace(Pace(_WARM_UP_RATE, warm_up_seconds), broker, topic)
        for number in range(1, plan.rounds + 1):
            for name in alternating(brokers, number):
                with plan.attempt(COMPACTED, name, number):
                    compacted, quiet = _round(brokers[name], records)
                    rows += [Row(COMPACTED, name, number, compacted), Row(QUIET, name, number, quiet)]
    settings = {
        "records": records,
        "record_bytes": RECORD_BYTES,
        "times_each_key": TIMES_EACH_KEY,
        "segments": SEGMENTS,
        "rate": RATE,
        "warm_up_rate": _WARM_UP_RATE,
        "warm_up_seconds": warm_up_seconds,
    }
    return Result(NAME, settings, rows)


def _round(broker: Broker, records: int) -> tuple[dict[str, float], dict[str, float]]:
    """The load during a compaction, and then for the same time without one."""
    segment_bytes = records // SEGMENTS * RECORD_BYTES
    with new_topic(broker, 1, {"cleanup.policy": "delete", "segment.bytes": str(segment_bytes)}) as topic:
        _fill(broker, topic, records)
        settle()
        with Paced(Pace(RATE, _PATIENCE_S, key=b"paced"), broker, topic) as load:
            _compact(broker, topic)
            compacted = load.stop()
        settle()
        return compacted, keep_pace(Pace(RATE, compacted["seconds"], key=b"paced"), broker, topic)


def _fill(broker: Broker, topic: str, records: int) -> None:
    """All keys, batch by batch, repeated as often as each key must occur."""
    batches = records // BATCH_RECORDS // TIMES_EACH_KEY
    now_ms = time.time_ns() // 1_000_000
    frames = []
    for number in range(batches):
        batch = encode_batch(
            [
                Record(at, now_ms, b"%d" % (number * BATCH_RECORDS + at), bytes(RECORD_BYTES))
                for at in range(BATCH_RECORDS)
            ]
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=_PRODUCE_TIMEOUT_MS, topic_data=[data])
        frames.append(request_frame(request, _PRODUCE_VERSION))
    with Wire(broker) as wire:
        for frame in frames * TIMES_EACH_KEY:
            wire.send(frame)
            _, response = decode_response(PRODUCE, _PRODUCE_VERSION, wire.receive())
            expect_none(response.responses[0].partition_responses[0].error_code, "Produce")


def _compact(broker: Broker, topic: str) -> None:
    """Starts the compaction of the topic and waits until it is done."""
    policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(_PATIENCE_S)
    until(lambda: compacted_to(broker, topic) > 0, f"{topic} is compacted", _PATIENCE_S)


def compacted_to(broker: Broker, topic: str) -> int:
    """The offset up to which the log is compacted, from the checkpoint file, which has the same format in both
    brokers."""
    checkpoint = broker.data_dir / CLEANER_OFFSETS
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return next((int(offset) for of, _, offset in map(str.split, lines[2:]) if of == topic), 0)


_SHOWN: Final = (
    ("longest time until acknowledgement, ms", "ack_max_ms"),
    ("longest time until consumption, ms", "trip_max_ms"),
    ("time until consumption, p99.9 ms", "trip_p999_ms"),
    ("time until consumption, p99 ms", "trip_p99_ms"),
    ("time until consumption, p50 ms", "trip_p50_ms"),
    ("longest delay of the client, ms", "late_max_ms"),
    ("duration, s", "seconds"),
    ("server CPU s per million records", "server_cpu_per_million"),
)


def section(result: Result) -> list[str]:
    rows = [
        (
            f"{series}: {what}",
            figure(result.values(series, HOLDFAST, name)),
            figure(result.values(series, KAFKA, name)),
            times(result.ratio(series, name)),
        )
        for series in (COMPACTED, QUIET)
        for what, name in _SHOWN
    ]
    return [paragraph(_method(result)), "", *table(("", "Holdfast", "Apache Kafka", "ratio"), rows)]


def _method(result: Result) -> str:
    settings = result.settings
    gigabytes = settings["records"] * settings["record_bytes"] / 1e9
    return (
        f"One partition has {gigabytes:g} GB in {settings['segments']} segments. Each record has"
        f" {settings['record_bytes']:,} B, and each key occurs {settings['times_each_key']} times. The benchmark"
        f" changes `cleanup.policy` of the topic to `compact`. At the same time, a producer sends {settings['rate']:,}"
        " records per second to the partition, and a consumer waits for these records (`benchmarks/pace.c`). All times"
        " start when a record is due. The load ends when the broker has recorded the end of the compaction in"
        " `cleaner-offset-checkpoint`. The duration therefore includes the wait for the start of the compaction, which"
        " is at most one second. After that, the same load runs for the same time without a compaction. Before the"
        f" first round, each server serves {settings['warm_up_rate']:,} records per second for"
        f" {settings['warm_up_seconds']} s. These records are not counted. The delay of the client shows how much the"
        " machine contributes to the longest times. Holdfast compacts in a child process. The CPU time of the server"
        " includes the child process. During a compaction, a record may wait for the disk, for a core if both cores are"
        " busy, or for the event loop when a new segment replaces old segments."
    )
