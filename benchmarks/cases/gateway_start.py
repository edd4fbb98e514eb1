"""A killed gateway starts again and reads the state of its groups from Kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from benchmarks.gateway_servers import any_broker, new_cluster, new_gateway
from benchmarks.librdkafka import end_offsets, new_topic
from benchmarks.measure import HOLDFAST, Plan, Result, Row, spread
from benchmarks.proc import cpu_seconds, resident_mib
from benchmarks.tables import Target, Verdict, figure, paragraph, table
from benchmarks.wire import COMMIT_VERSION, Wire, expect_none
from holdfast.gateway.state.topic import GROUPS_TOPIC
from holdfast.gateway.state.topic import PARTITIONS as STATE_PARTITIONS
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import partition_for
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_cluster import KafkaCluster

NAME: Final = "gateway-start"
SERIES: Final = "start after kill -9"
TIME_TARGET: Final = Target("at most", 5, " s")
LOSS_TARGET: Final = Target("at most", 0, " offsets")
BROKERS: Final = 3

_CONNECTIONS: Final = 20
_PRIME: Final = 7919
_TRIED_AGAIN: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
_PATIENCE_SECONDS: Final = 120
_POLL_SECONDS: Final = 0.01


def run(plan: Plan) -> Result:
    groups, offsets = plan.pick(full=1000, quick=100), plan.pick(full=100, quick=20)
    names = group_names(groups)
    rows: list[Row] = []
    with (
        new_cluster(BROKERS) as cluster,
        new_gateway(cluster) as gateway,
        new_topic(any_broker(cluster), offsets) as topic,
    ):
        with ThreadPoolExecutor(_CONNECTIONS) as workers:
            list(workers.map(lambda some: _commit_all(gateway, topic, some, offsets), _shares(names)))
        for number in range(1, plan.rounds + 1):
            with plan.attempt(SERIES, HOLDFAST, number):
                rows.append(Row(SERIES, HOLDFAST, number, _round(cluster, gateway, topic, names, offsets)))
    settings = {"brokers": BROKERS, "groups": groups, "offsets": offsets, "state_partitions": STATE_PARTITIONS}
    return Result(NAME, settings, rows)


def group_names(count: int) -> list[str]:
    """Names that end in a number. With consecutive numbers, some partitions would have no group."""
    return [f"start-{number * _PRIME:08}" for number in range(count)]


def _shares(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[first::_CONNECTIONS] for first in range(_CONNECTIONS)]


def _commit_all(gateway: GatewayProcess, topic: str, names: Sequence[str], offsets: int) -> None:
    with Wire(gateway) as wire:
        for name in names:
            _commit(wire, topic, name, offsets)


def _commit(wire: Wire, topic: str, group: str, offsets: int) -> None:
    """Commits the same offsets every time, until the commit is answered without an error."""
    partitions = [
        OffsetCommitRequestPartition(index, _offset(group, index), -1, committed_metadata="")
        for index in range(offsets)
    ]
    commit = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=partitions)])
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        response = wire.ask(commit, COMMIT_VERSION)
        codes = {ErrorCode(partition.error_code) for partition in response.topics[0].partitions}
        if not codes & _TRIED_AGAIN or time.monotonic() > deadline:
            for code in codes:
                expect_none(code, "OffsetCommit")
            return
        time.sleep(_POLL_SECONDS)


def _round(
    cluster: KafkaCluster, gateway: GatewayProcess, topic: str, names: list[str], offsets: int
) -> dict[str, float]:
    records = sum(end_offsets(any_broker(cluster), GROUPS_TOPIC, STATE_PARTITIONS))
    gateway.kill()
    began = time.monotonic()
    gateway.start()
    ready_s = time.monotonic() - began
    # At once, as the members of all groups come back.
    with ThreadPoolExecutor(STATE_PARTITIONS) as workers:
        chosen = one_of_each_partition(names)
        answered = [at - began for at in workers.map(lambda group: _commit_after_start(gateway, topic, group), chosen)]
    figures = {
        "records": records,
        "ready_s": ready_s,
        "first_s": min(answered),
        "served_s": max(answered),
        "cpu_s": cpu_seconds(gateway.pid),
        "rss_mib": resident_mib(gateway.pid),
    }
    with Wire(gateway) as wire:
        return {**figures, "lost": sum(_lost(wire, topic, group, offsets) for group in names)}


def _commit_after_start(gateway: GatewayProcess, topic: str, group: str) -> float:
    """When the commit was answered."""
    with Wire(gateway) as wire:
        _commit(wire, topic, group, 1)
    return time.monotonic()


def one_of_each_partition(names: Sequence[str]) -> list[str]:
    found: dict[int, str] = {}
    for name in names:
        found.setdefault(partition_for(name, STATE_PARTITIONS), name)
    return list(found.values())


def _offset(group: str, partition: int) -> int:
    """A different one for every group and partition."""
    return int(group.rpartition("-")[2]) * 1000 + partition


def _lost(wire: Wire, topic: str, group: str, offsets: int) -> int:
    """The number of the group's offsets that differ from its commit."""
    answer = wire.fetch_offsets(group)
    expect_none(answer.error_code, "OffsetFetch")
    found = {
        partition.partition_index: partition.committed_offset
        for each in answer.topics
        if each.name == topic
        for partition in each.partitions
    }
    return sum(found.get(partition) != _offset(group, partition) for partition in range(offsets))


_SHOWN: Final = (
    ("records in `__holdfast_groups`", "records"),
    ("time from start until all groups are served, s", "served_s"),
    ("time from start until the first commit is answered, s", "first_s"),
    ("time from start until the ports are open, s", "ready_s"),
    ("CPU time until all groups are served, s", "cpu_s"),
    ("memory (RSS) when all groups are served, MiB", "rss_mib"),
    ("lost offsets", "lost"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        f"On a Kafka cluster with {settings['brokers']} brokers, each of {settings['groups']:,} groups has committed"
        f" {settings['offsets']} offsets at the gateway. In each round, the benchmark kills the gateway with `kill -9`"
        " and starts it again at once. The new process claims all partitions of `__holdfast_groups`, reads them to the"
        " end, and lists all topics of the cluster. The time is measured from the start of the process until it has"
        f" answered a commit of one group in each of the {settings['state_partitions']} partitions without an error."
        " These groups commit at the same time, each on its own connection."
        " Then the benchmark fetches every offset of every group and compares it with the last acknowledged offset."
    )
    targets = {"served_s": str(TIME_TARGET), "lost": str(LOSS_TARGET)}
    rows = [(what, figure(result.values(SERIES, HOLDFAST, name)), targets.get(name, "")) for what, name in _SHOWN]
    return [paragraph(text), "", *table(("", "gateway", "target"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    if not result.has(SERIES, HOLDFAST):
        return []
    records = result.settings["groups"] * result.settings["offsets"]
    what = f"cold start of a gateway with {records:,} records after kill -9"
    return [
        Verdict(what, TIME_TARGET, spread(result.values(SERIES, HOLDFAST, "served_s"))),
        Verdict(f"{what}: lost offsets", LOSS_TARGET, spread(result.values(SERIES, HOLDFAST, "lost"))),
    ]
