"""Reading the group log after `kill -9`: the time until every group is served, and whether every commit was
restored."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating, spread
from benchmarks.proc import cpu_seconds, resident_mib
from benchmarks.servers import Broker
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from benchmarks.wire import COMMIT_VERSION, Wire, expect_none, request_frame
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.group_records import partition_for
from holdfast.wire.headers import decode_response
from tests.support.apache_kafka import ApacheKafka
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "group-reload"
SERIES: Final = "reload"
TIME_TARGET: Final = Target("at most", 4, " s")
LOSS_TARGET: Final = Target("at most", 0, " offsets")
OFFSETS_PARTITIONS: Final = 50

_SETTINGS: Final = {"offsets.topic.num.partitions": str(OFFSETS_PARTITIONS)}
_CONNECTIONS: Final = 20

Killable = HoldfastBroker | ApacheKafka


def run(plan: Plan) -> Result:
    groups, offsets = plan.pick(full=10_000, quick=200), plan.pick(full=100, quick=10)
    rounds = plan.pick(full=plan.rounds, quick=1)
    names = [f"reload-{number:05}" for number in range(groups)]
    rows: list[Row] = []
    with HoldfastBroker(_SETTINGS) as ours, ApacheKafka(_SETTINGS) as theirs:
        brokers: dict[str, Killable] = {HOLDFAST: ours, KAFKA: theirs}
        with new_topic(ours, offsets) as our_topic, new_topic(theirs, offsets) as their_topic:
            topics = {HOLDFAST: our_topic, KAFKA: their_topic}
            for name, broker in brokers.items():
                _commit(broker, topics[name], names, offsets, 0)
            for number in range(1, rounds + 1):
                for name in alternating(brokers, number):
                    with plan.attempt(SERIES, name, number):
                        rows.append(
                            Row(SERIES, name, number, _round(brokers[name], topics[name], names, offsets, number))
                        )
    return Result(NAME, {"groups": groups, "offsets": offsets, "journal_partitions": OFFSETS_PARTITIONS}, rows)


def _round(broker: Killable, topic: str, names: list[str], offsets: int, number: int) -> dict[str, float]:
    """Every tenth group commits once more, so that the kill happens right after an acknowledgement."""
    _commit(broker, topic, names[number % 10 :: 10], offsets, number)
    broker.kill()
    began = time.monotonic()
    broker.start()
    ready_s = time.monotonic() - began
    with Wire(broker) as wire:
        for group in _one_of_each_offsets_partition(names):
            wire.wait_for_group(group)
        figures = {
            "ready_s": ready_s,
            "loaded_s": time.monotonic() - began,
            "cpu_s": cpu_seconds(broker.pid),
            "rss_mib": resident_mib(broker.pid),
        }
        lost = sum(_lost(wire, topic, group, index, offsets, number) for index, group in enumerate(names))
    return {**figures, "lost": lost}


def _commit(broker: Broker, topic: str, groups: Sequence[str], offsets: int, number: int) -> None:
    """Commits all partitions of the topic in each group; returns when all are acknowledged."""
    with contextlib.ExitStack() as stack:
        # Several connections, because Kafka serves one request of a connection at a time and delays it to batch it with
        # others.
        wires = [stack.enter_context(Wire(broker)) for _ in range(min(_CONNECTIONS, len(groups)))]
        for group in _one_of_each_offsets_partition(groups):
            wires[0].wait_for_group(group)
        for index, group in enumerate(groups):
            wire = wires[index % len(wires)]
            if index >= len(wires):
                _take_acknowledgement(wire)
            wire.send(_commit_frame(group, topic, offsets, number))
        for wire in wires:
            _take_acknowledgement(wire)


def _commit_frame(group: str, topic: str, offsets: int, number: int) -> bytes:
    partitions = [
        OffsetCommitRequestPartition(index, _offset(group, index, number), -1, committed_metadata="")
        for index in range(offsets)
    ]
    return request_frame(
        OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=partitions)]), COMMIT_VERSION
    )


def _take_acknowledgement(wire: Wire) -> None:
    _, response = decode_response(OFFSET_COMMIT, COMMIT_VERSION, wire.receive())
    for partition in response.topics[0].partitions:
        expect_none(partition.error_code, "OffsetCommit")


def _offset(group: str, partition: int, number: int) -> int:
    """A different offset for every group, partition and round."""
    return (int(group[-5:]) * 1000 + partition) * 1000 + number


def _lost(wire: Wire, topic: str, group: str, index: int, offsets: int, number: int) -> int:
    """The number of the group's offsets that differ from its last commit."""
    last = max((round_ for round_ in range(1, number + 1) if index % 10 == round_ % 10), default=0)
    answer = wire.fetch_offsets(group)
    expect_none(answer.error_code, "OffsetFetch")
    found = {
        partition.partition_index: partition.committed_offset
        for each in answer.topics
        if each.name == topic
        for partition in each.partitions
    }
    return sum(found.get(partition) != _offset(group, partition, last) for partition in range(offsets))


def _one_of_each_offsets_partition(names: Iterable[str]) -> Iterator[str]:
    seen: set[int] = set()
    for name in names:
        partition = partition_for(name, OFFSETS_PARTITIONS)
        if partition not in seen:
            seen.add(partition)
            yield name


_SHOWN: Final = (
    ("time from start until all groups are served, s", "loaded_s"),
    ("time from start until the first response, s", "ready_s"),
    ("CPU time until all groups are served, s", "cpu_s"),
    ("memory (RSS) when all groups are served, MiB", "rss_mib"),
    ("lost offsets", "lost"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        f"Each of {settings['groups']:,} groups has committed {settings['offsets']} different offsets. In each round,"
        " every tenth group commits once more. Right after the acknowledgement of these commits, the benchmark kills"
        " the server with `kill -9` and starts it again on the same disk. The time is measured from the start of the"
        " process until the server has answered OffsetFetch for one group in each of the"
        f" {settings['journal_partitions']} partitions of `__consumer_offsets`. Then the benchmark fetches every offset"
        " of every group and compares it with the last acknowledged offset. After a kill, Kafka's controller waits"
        " until the session of the killed broker expires (`broker.session.timeout.ms`, 9 s by default) before it admits"
        " the restarted broker. The time until the first response includes this wait."
    )
    rows = [
        (
            what,
            figure(result.values(SERIES, HOLDFAST, name)),
            figure(result.values(SERIES, KAFKA, name)),
            times(result.ratio(SERIES, name)) if name != "lost" else "",
            {"loaded_s": str(TIME_TARGET), "lost": str(LOSS_TARGET)}.get(name, ""),
        )
        for what, name in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast", "Apache Kafka", "ratio", "target"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    if not result.has(SERIES, HOLDFAST):
        return []
    what = f"reload of {result.settings['groups']:,} groups × {result.settings['offsets']} offsets after kill -9"
    return [
        Verdict(what, TIME_TARGET, spread(result.values(SERIES, HOLDFAST, "loaded_s"))),
        Verdict(f"{what}: lost offsets", LOSS_TARGET, spread(result.values(SERIES, HOLDFAST, "lost"))),
    ]
