"""Offset commits. Each is written to the group log before the response."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from benchmarks.librdkafka import new_topic
from benchmarks.load import Load, send
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating, per_million
from benchmarks.members import join_alone
from benchmarks.proc import cpu_seconds
from benchmarks.process_tree import usage
from benchmarks.servers import Broker, both, settle
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from benchmarks.wire import COMMIT_VERSION, Wire, expect_none, request_frame
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.headers import decode_response

NAME: Final = "group-commits"
SERIES: Final = "commits"
RATE_TARGET: Final = Target("at least", 0.7)
CPU_TARGET: Final = Target("at most", 1.3)
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
        groups = [f"commits-{number:03}" for number in range(GROUPS)]
        frames = {name: commit_frames(broker, groups, topics[name], PARTITIONS) for name, broker in brokers.items()}
        for name, broker in brokers.items():
            send_commits(broker, frames[name], warm_up_seconds)
        for number in range(1, plan.rounds + 1):
            for name in alternating(brokers, number):
                settle()
                with plan.attempt(SERIES, name, number):
                    rows.append(Row(SERIES, name, number, send_commits(brokers[name], frames[name], seconds)))
    settings = {"seconds": seconds, "warm_up_seconds": warm_up_seconds, "groups": GROUPS, "partitions": PARTITIONS}
    return Result(NAME, settings, rows)


def commit_frames(broker: Broker, groups: Sequence[str], topic: str, partition_count: int) -> list[bytes]:
    """The commit of the one member of each group."""
    frames = []
    with Wire(broker) as wire:
        for group in groups:
            wire.wait_for_group(group)
            member_id, generation = join_alone(wire, group)
            partitions = [
                OffsetCommitRequestPartition(index, _COMMITTED, -1, committed_metadata="")
                for index in range(partition_count)
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


def send_commits(broker: Broker, frames: list[bytes], seconds: float) -> dict[str, float]:
    with Wire(broker) as wire:
        good = wire.reply_to(frames[0])
    _, response = decode_response(OFFSET_COMMIT, COMMIT_VERSION, _NO_ID + good)
    for partition in response.topics[0].partitions:
        expect_none(partition.error_code, "OffsetCommit")
    before = _children_cpu_seconds(broker)
    measured = send(Load(len(frames), 1, seconds), broker, b"".join(frames), expected=good)
    # The load generator measures the server's process, but not the process that compacts `__consumer_offsets`.
    compaction = max(0.0, _children_cpu_seconds(broker) - before)
    measured["server_cpu_per_million"] += per_million(compaction, measured["requests"])
    measured["server_cores"] += compaction / measured["seconds"]
    return measured


def _children_cpu_seconds(broker: Broker) -> float:
    return usage(broker.pid, str).total - cpu_seconds(broker.pid)


_SHOWN: Final = (
    ("commits/s", "requests_per_s", 1.0),
    ("latency p50, ms", "p50_us", 1e-3),
    ("latency p99, ms", "p99_us", 1e-3),
    ("server CPU s per million commits", "server_cpu_per_million", 1.0),
    ("client CPU s per million commits", "client_cpu_per_million", 1.0),
    ("cores used by the server", "server_cores", 1.0),
)
_TARGETS: Final = {"requests_per_s": RATE_TARGET, "server_cpu_per_million": CPU_TARGET}


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        f"Each of the {settings['groups']} groups has one static member with its own connection. Each member commits"
        f" the offsets of {settings['partitions']} partitions in one OffsetCommit request (v{COMMIT_VERSION}) and has"
        " one request in flight. A load generator in C (`benchmarks/load.c`) sends the requests as fast as the server"
        " responds. Every response must be identical, byte for byte, to a response without an error. Both servers give"
        " the same guarantee. Before they respond, they write the commit to `__consumer_offsets`, in the page cache of"
        " the operating system. The commit survives the end of the process, but not a power failure. This is the"
        " default behavior of both servers. Holdfast has `flush=os`, and Kafka does not flush. Each commit writes"
        f" {settings['partitions']} records. Kafka collects the records of several groups into one batch, and Holdfast"
        f" writes one batch for each group. A round takes {settings['seconds']} s. Before the first round, each server"
        f" serves the same load for {settings['warm_up_seconds']} s. This load is not counted. Holdfast handles the"
        " requests on one core, and Kafka distributes them over all cores. Holdfast compacts `__consumer_offsets`"
        " during the rounds, because it also compacts active segments of at least 1 MiB. Kafka does not compact the"
        " topic during the rounds, because it compacts only full segments, and its segments of 100 MB do not fill up."
        " The CPU time of Holdfast includes the compactions."
    )
    kafka_cores = result.values(SERIES, KAFKA, "server_cores")
    if kafka_cores:
        text += (
            " One core limits the rate of Holdfast. Kafka used the cores that the last row shows, so that one core with"
            f" Kafka's CPU time per commit would reach {1 / statistics.median(kafka_cores):.2f}× of Kafka's rate."
        )
    rows = [
        (
            what,
            figure([value * scale for value in result.values(SERIES, HOLDFAST, name)]),
            figure([value * scale for value in result.values(SERIES, KAFKA, name)]),
            times(result.ratio(SERIES, name)),
            str(_TARGETS.get(name, "")),
        )
        for what, name, scale in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast", "Apache Kafka", "ratio", "target"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    of = f"{GROUPS} groups × {PARTITIONS} partitions"
    names = {
        "requests_per_s": f"offset commits/s, {of} ÷ Kafka",
        "server_cpu_per_million": f"offset commits, {of}, server CPU time per commit ÷ Kafka",
    }
    measured = ((names[name], target, result.ratio(SERIES, name)) for name, target in _TARGETS.items())
    return [Verdict(what, target, ratio) for what, target, ratio in measured if ratio is not None]
