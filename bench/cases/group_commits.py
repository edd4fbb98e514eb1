"""Offset commits: every one is written to the journal before it is answered."""

from __future__ import annotations

from typing import Final

from bench.librdkafka import new_topic
from bench.load import Load, send
from bench.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from bench.members import join_alone
from bench.servers import Broker, both, settle
from bench.tables import Target, Verdict, figure, paragraph, table, times
from bench.wire import COMMIT_VERSION, Wire, expect_none, request_frame
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.headers import decode_response

NAME: Final = "group-commits"
SERIES: Final = "commits"
TARGET: Final = Target("at least", 0.6)
GROUPS: Final = 100
PARTITIONS: Final = 10

_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_COMMITTED: Final = 1_234_567
_NO_ID: Final = bytes(4)


def run(plan: Plan) -> Result:
    seconds, warm_up_seconds = plan.pick(full=3, quick=1), plan.pick(full=10, quick=1)
    rows: list[Row] = []
    with (
        both(_NO_DELAY, _NO_DELAY) as brokers,
        new_topic(brokers[HOLDFAST], PARTITIONS) as ours,
        new_topic(brokers[KAFKA], PARTITIONS) as theirs,
    ):
        topics = {HOLDFAST: ours, KAFKA: theirs}
        frames = {name: _group_frames(broker, topics[name]) for name, broker in brokers.items()}
        for name, broker in brokers.items():
            _round(broker, frames[name], warm_up_seconds)
        for number in range(1, plan.rounds + 1):
            for name in alternating(brokers, number):
                settle()
                rows.append(Row(SERIES, name, number, _round(brokers[name], frames[name], seconds)))
    settings = {"seconds": seconds, "warm_up_seconds": warm_up_seconds, "groups": GROUPS, "partitions": PARTITIONS}
    return Result(NAME, settings, rows)


def _group_frames(broker: Broker, topic: str) -> list[bytes]:
    """The commit of the one member of each group."""
    frames = []
    with Wire(broker) as wire:
        for number in range(GROUPS):
            group = f"commits-{number:03}"
            wire.wait_for_group(group)
            member_id, generation = join_alone(wire, group)
            partitions = [
                OffsetCommitRequestPartition(index, _COMMITTED, -1, committed_metadata="")
                for index in range(PARTITIONS)
            ]
            commit = OffsetCommitRequest(
                group,
                generation,
                member_id,
                f"instance-of-{group}",
                topics=[OffsetCommitRequestTopic(topic, partitions=partitions)],
            )
            frames.append(request_frame(commit, COMMIT_VERSION))
    return frames


def _round(broker: Broker, frames: list[bytes], seconds: float) -> dict[str, float]:
    with Wire(broker) as wire:
        good = wire.reply_to(frames[0])
    _, response = decode_response(OFFSET_COMMIT, COMMIT_VERSION, _NO_ID + good)
    for partition in response.topics[0].partitions:
        expect_none(partition.error_code, "OffsetCommit")
    return send(Load(len(frames), 1, seconds), broker, b"".join(frames), expected=good)


_SHOWN: Final = (
    ("commits/s", "requests_per_s", 1.0),
    ("p50 ms", "p50_us", 1e-3),
    ("p99 ms", "p99_us", 1e-3),
    ("server CPU s per million", "server_cpu_per_million", 1.0),
    ("client CPU s per million", "client_cpu_per_million", 1.0),
    ("server cores", "server_cores", 1.0),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        f"{settings['groups']} groups of one static member each, on a connection of its own; each commits"
        f" {settings['partitions']} partitions in one OffsetCommit (v{COMMIT_VERSION}), one in flight, as fast as the"
        " server answers, by a load generator in C (`bench/load.c`). Every reply must be the one without an error, byte"
        " for byte. Both servers give the same promise: the commit is in the journal, in the page cache of the system,"
        " before it is answered, and it survives the end of the process, not that of the machine (Holdfast: `flush=os`,"
        " its default; Kafka: no flush by itself, its default). A commit is"
        f" {settings['partitions']} records; Kafka gathers those of several groups into one batch, Holdfast writes a"
        " batch for each."
        f" Rounds of {settings['seconds']} s; before the first, {settings['warm_up_seconds']} s of the same load on"
        " each server, uncounted. What limits Holdfast is one core: in its profile half of a commit is making the ten"
        " records and writing them, a fifth reading the request and looking up its partitions; Kafka spreads the same"
        " over all cores of the machine."
    )
    rows = [
        (
            what,
            figure([value * scale for value in result.values(SERIES, HOLDFAST, name)]),
            figure([value * scale for value in result.values(SERIES, KAFKA, name)]),
            times(result.ratio(SERIES, name)),
            str(TARGET) if name == "requests_per_s" else "",
        )
        for what, name, scale in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast", "Apache Kafka", "ratio", "target"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    ratio = result.ratio(SERIES, "requests_per_s")
    what = f"offset commits/s, {GROUPS} groups × {PARTITIONS} partitions, ÷ Kafka"
    return [Verdict(what, TARGET, ratio)] if ratio is not None else []
