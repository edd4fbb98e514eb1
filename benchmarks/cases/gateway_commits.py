"""Offset commits at a gateway, which stores them in Kafka, compared with commits at Kafka's own coordinator."""

from __future__ import annotations

from typing import Final

from benchmarks.cases.group_commits import commit_frames, send_commits
from benchmarks.gateway_servers import ClusterBroker, any_broker, coordinator, new_cluster, new_gateway
from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, KAFKA, MILLION, Plan, Result, Row, alternating, spread
from benchmarks.servers import settle
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_cluster import KafkaCluster

NAME: Final = "gateway-commits"
LATENCY_TARGET: Final = Target("at most", 1.3)
RATE_TARGET: Final = Target("at least", 5000, "/s")
BROKERS: Final = 3
GROUPS: Final = 100
PARTITIONS: Final = (4, 10)
"""Of one commit. The first number has the targets."""

_LATENCIES: Final = {"p50_us": "median", "p99_us": "99th percentile"}


def run(plan: Plan) -> Result:
    seconds, warm_up_seconds = plan.pick(full=5, quick=1), plan.pick(full=20, quick=2)
    rows: list[Row] = []
    with (
        new_cluster(BROKERS) as cluster,
        new_gateway(cluster) as gateway,
        new_topic(any_broker(cluster), max(PARTITIONS)) as topic,
    ):
        loads = _loads(gateway, cluster, topic)
        for server, frames in loads.values():
            send_commits(server, frames, warm_up_seconds / len(loads))
        for number in range(1, plan.rounds + 1):
            for (series, name), (server, frames) in alternating(loads.items(), number):
                settle()
                with plan.attempt(series, name, number):
                    figures = send_commits(server, frames, seconds)
                    figures["commits_per_cpu_s"] = MILLION / figures["server_cpu_per_million"]
                    rows.append(Row(series, name, number, figures))
    settings = {
        "seconds": seconds,
        "warm_up_seconds": warm_up_seconds,
        "brokers": BROKERS,
        "groups": GROUPS,
        "partitions": list(PARTITIONS),
    }
    return Result(NAME, settings, rows)


def _loads(
    gateway: GatewayProcess, cluster: KafkaCluster, topic: str
) -> dict[tuple[str, str], tuple[GatewayProcess | ClusterBroker, list[bytes]]]:
    """The commits of every series, by series and server.

    A group of Kafka itself has another name, because Kafka refuses members of a group that is on the gateway.
    """
    loads: dict[tuple[str, str], tuple[GatewayProcess | ClusterBroker, list[bytes]]] = {}
    for partitions in PARTITIONS:
        direct = f"direct-{partitions}"
        kafka = coordinator(cluster, direct)
        one = one_group(partitions)
        loads[one, HOLDFAST] = gateway, commit_frames(gateway, [f"gateway-{partitions}"], topic, partitions)
        loads[one, KAFKA] = kafka, commit_frames(kafka, [direct], topic, partitions)
    for partitions in PARTITIONS:
        groups = [f"gateway-{partitions}-{number:03}" for number in range(GROUPS)]
        loads[many_groups(partitions), HOLDFAST] = gateway, commit_frames(gateway, groups, topic, partitions)
    return loads


def one_group(partitions: int) -> str:
    return f"one group, {partitions} partitions"


def many_groups(partitions: int) -> str:
    return f"{GROUPS} groups, {partitions} partitions"


def section(result: Result) -> list[str]:
    return [paragraph(_method(result)), "", *_one_group(result), *_many_groups(result)]


def _one_group(result: Result) -> list[str]:
    rows = [
        (
            f"{partitions} partitions, latency {what}, ms",
            figure([value / 1000 for value in result.values(one_group(partitions), HOLDFAST, name)]),
            figure([value / 1000 for value in result.values(one_group(partitions), KAFKA, name)]),
            times(result.ratio(one_group(partitions), name)),
            str(LATENCY_TARGET) if partitions == PARTITIONS[0] else "",
        )
        for partitions in result.settings["partitions"]
        for name, what in _LATENCIES.items()
    ]
    return ["### One group", "", *table(("", "gateway", "Kafka's coordinator", "ratio", "target"), rows)]


def _many_groups(result: Result) -> list[str]:
    rows = [
        (
            f"{partitions} partitions",
            figure(result.values(many_groups(partitions), HOLDFAST, "commits_per_cpu_s")),
            str(RATE_TARGET) if partitions == PARTITIONS[0] else "",
            figure(result.values(many_groups(partitions), HOLDFAST, "requests_per_s")),
            figure([value / 1000 for value in result.values(many_groups(partitions), HOLDFAST, "p50_us")]),
            figure([value / 1000 for value in result.values(many_groups(partitions), HOLDFAST, "p99_us")]),
            figure(result.values(many_groups(partitions), HOLDFAST, "server_cores")),
        )
        for partitions in result.settings["partitions"]
    ]
    head = (
        "",
        "commits per CPU second of the gateway",
        "target",
        "commits/s",
        "latency p50, ms",
        "latency p99, ms",
        "cores used by the gateway",
    )
    return [f"### {result.settings['groups']} groups", "", *table(head, rows)]


def _method(result: Result) -> str:
    settings = result.settings
    first, second = settings["partitions"]
    return (
        f"A Kafka cluster has {settings['brokers']} brokers. `__holdfast_groups` and `__consumer_offsets` have three"
        " replicas, and both the gateway and Kafka's coordinator answer a commit when all in-sync replicas have it."
        " Each group has one static member with its own connection and one OffsetCommit in flight, which commits the"
        f" offsets of {first} or {second} partitions. The load generator in C sends the next commit when the last one"
        " was answered, and checks every response byte by byte. With one group, the same commits are sent to the"
        " gateway and to the broker that coordinates another group in Kafka, in turn. Kafka has its default"
        f" configuration for groups. With {settings['groups']} groups, only the gateway is measured: the rate per CPU"
        " second of its process. The CPU time of the brokers, which store the commits, is not included. A round takes"
        f" {settings['seconds']} s for each. Before the first round, the same load runs for"
        f" {settings['warm_up_seconds']} s in total. This load is not counted. All brokers, the gateway and the load"
        " generator share the cores of one machine, so that the latencies are those of a busy cluster."
    )


def verdicts(result: Result) -> list[Verdict]:
    first = PARTITIONS[0]
    found = []
    for name, what in _LATENCIES.items():
        if (ratio := result.ratio(one_group(first), name)) is not None:
            found.append(
                Verdict(f"commits at a gateway, one group, {what} of the latency ÷ Kafka", LATENCY_TARGET, ratio)
            )
    rates = result.values(many_groups(first), HOLDFAST, "commits_per_cpu_s")
    if rates:
        what = f"commits at a gateway, {GROUPS} groups × {first} partitions, per CPU second"
        found.append(Verdict(what, RATE_TARGET, spread(rates)))
    return found
