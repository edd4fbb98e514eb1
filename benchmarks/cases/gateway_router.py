"""Records through a gateway: the rate compared with Kafka alone, and the CPU time of the gateway."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.client import CONSUME_AT_ONCE, CONSUMER, PRODUCER
from benchmarks.gateway_servers import any_broker, await_idle, new_cluster, new_gateway
from benchmarks.librdkafka import new_topic, run_client
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, Spread, alternating, spread
from benchmarks.proc import cpu_seconds, resident_mib
from benchmarks.servers import settle
from benchmarks.tables import Target, Verdict, figure, median, paragraph, table, times
from tests.support.certificates import make_authority
from tests.support.kafka_cluster import KafkaCluster

NAME: Final = "gateway-router"
TLS: Final = "holdfast-tls"
"""The gateway with TLS towards its clients. Its connections to Kafka are plain."""
CONSUME: Final = "consume"
PRODUCE: Final = "produce"
RATE_TARGET: Final = Target("at least", 0.8)
CPU_TARGETS: Final = {CONSUME: Target("at most", 0.7, " s"), PRODUCE: Target("at most", 1.5, " s")}
PARTITIONS: Final = 12
RECORD_BYTES: Final = 1000

_GB: Final = 1e9


def run(plan: Plan) -> Result:
    records, warm_up_seconds = plan.pick(full=1_000_000, quick=100_000), plan.pick(full=30, quick=3)
    rows: list[Row] = []
    with (
        new_cluster(1) as cluster,
        tempfile.TemporaryDirectory(prefix="gateway-tls-") as directory,
        new_topic(any_broker(cluster), PARTITIONS) as shelf,
    ):
        tls = _Tls(Path(directory))
        _client(PRODUCE, cluster, cluster.bootstrap, shelf, records, full_batches=True)
        _warm_up(cluster, shelf, records, warm_up_seconds)
        for number in range(1, plan.rounds + 1):
            for way in alternating((KAFKA, HOLDFAST, TLS), number):
                with _server(way, cluster, tls) as server:
                    for series in (PRODUCE, CONSUME):
                        with plan.attempt(series, way, number):
                            rows.append(Row(series, way, number, _measure(series, server, cluster, shelf, records)))
    settings = {
        "records": records,
        "record_bytes": RECORD_BYTES,
        "partitions": PARTITIONS,
        "warm_up_seconds": warm_up_seconds,
        "producer": PRODUCER,
        "consumer": CONSUMER,
        "consume_at_once": CONSUME_AT_ONCE,
    }
    return Result(NAME, settings, rows)


class _Tls:
    """The certificate of the gateway, and the settings of both sides."""

    def __init__(self, directory: Path) -> None:
        authority = make_authority(directory)
        self._signed = authority.sign("gateway", "IP:127.0.0.1")
        self.client = {"security.protocol": "ssl", "ssl.ca.location": str(authority.certificate)}

    def options(self, host: str, port: int) -> list[str]:
        certificate, key = self._signed.certificate, self._signed.key
        return [
            *("--listen", f"SSL://{host}:{port}"),
            *("--set", f"ssl.certificate.location={certificate}", "--set", f"ssl.key.location={key}"),
        ]


class _Server:
    """The address for the clients, and the process whose CPU time is measured besides Kafka's."""

    def __init__(self, bootstrap: str, gateway_pid: int | None, security: dict[str, str] | None) -> None:
        self.bootstrap = bootstrap
        self.gateway_pid = gateway_pid
        self.security = security


@contextlib.contextmanager
def _server(way: str, cluster: KafkaCluster, tls: _Tls) -> Iterator[_Server]:
    """Each turn has a new gateway, because only one at a time can have the ports that Kafka advertises."""
    if way == KAFKA:
        yield _Server(cluster.bootstrap, None, None)
        return
    options = tls.options(*cluster.gateway_address) if way == TLS else []
    with new_gateway(cluster, *options) as gateway:
        await_idle(gateway)
        yield _Server(gateway.bootstrap, gateway.pid, tls.client if way == TLS else None)


def _warm_up(cluster: KafkaCluster, shelf: str, records: int, seconds: float) -> None:
    """Kafka's JVM compiles the code that is measured."""
    direct = _Server(cluster.bootstrap, None, None)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for series in (PRODUCE, CONSUME):
            _measure(series, direct, cluster, shelf, records)


def _measure(series: str, server: _Server, cluster: KafkaCluster, shelf: str, records: int) -> dict[str, float]:
    if series == CONSUME:
        return _figures(series, server, cluster, shelf, records)
    with new_topic(any_broker(cluster), PARTITIONS) as topic:
        return _figures(series, server, cluster, topic, records)


def _figures(series: str, server: _Server, cluster: KafkaCluster, topic: str, records: int) -> dict[str, float]:
    settle()
    kafka_pid = cluster.pid(cluster.node_ids[0])
    before = cpu_seconds(kafka_pid)
    measured = _client(
        series,
        cluster,
        server.bootstrap,
        topic,
        records,
        server_pid=server.gateway_pid or kafka_pid,
        security=server.security,
    )
    # Around the whole client, because the client reads the CPU time of one process only. Kafka is idle while it starts.
    kafka_cpu = cpu_seconds(kafka_pid) - before
    gigabytes = records * RECORD_BYTES / _GB
    figures = {
        "mb_per_s": measured["mb_per_s"],
        "seconds": measured["seconds"],
        "client_cpu_per_gb": measured["client_cores"] * measured["seconds"] / gigabytes,
        "client_cores": measured["client_cores"],
        "kafka_cpu_per_gb": kafka_cpu / gigabytes,
        "kafka_cores": kafka_cpu / measured["seconds"],
    }
    if server.gateway_pid is not None:
        figures |= {
            "gateway_cpu_per_gb": measured["server_cores"] * measured["seconds"] / gigabytes,
            "gateway_cores": measured["server_cores"],
            "gateway_rss_mib": resident_mib(server.gateway_pid),
        }
    return figures


def _client(
    series: str,
    cluster: KafkaCluster,
    bootstrap: str,
    topic: str,
    records: int,
    server_pid: int | None = None,
    **options: Any,
) -> dict[str, float]:
    return run_client(
        series,
        bootstrap=bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        records=records,
        record_bytes=RECORD_BYTES,
        server_pid=server_pid or cluster.pid(cluster.node_ids[0]),
        **options,
    )


_NAMES: Final = {KAFKA: "Kafka alone", HOLDFAST: "through the gateway", TLS: "through the gateway, with TLS"}
_HEAD: Final = (
    "",
    "MB/s",
    "÷ Kafka alone",
    "target",
    "gateway CPU s/GB",
    "target",
    "Kafka CPU s/GB",
    "client CPU s/GB",
    "cores used: gateway + Kafka + client",
    "gateway memory (RSS), MiB",
)


def section(result: Result) -> list[str]:
    lines = [paragraph(_method(result)), ""]
    for series in (CONSUME, PRODUCE):
        rows = [_line(result, series, way) for way in _NAMES]
        lines += [f"### {series.capitalize()}", "", *table(_HEAD, rows)]
    return lines


def _line(result: Result, series: str, way: str) -> tuple[str, ...]:
    cores = [median(result.values(series, way, f"{name}_cores")) for name in ("kafka", "client")]
    if way != KAFKA:
        cores.insert(0, median(result.values(series, way, "gateway_cores")))
    return (
        _NAMES[way],
        figure(result.values(series, way, "mb_per_s")),
        "" if way == KAFKA else times(_rate(result, series, way)),
        str(RATE_TARGET) if way == HOLDFAST else "",
        "" if way == KAFKA else figure(result.values(series, way, "gateway_cpu_per_gb")),
        str(CPU_TARGETS[series]) if way == HOLDFAST else "",
        figure(result.values(series, way, "kafka_cpu_per_gb")),
        figure(result.values(series, way, "client_cpu_per_gb")),
        " + ".join(cores),
        "" if way == KAFKA else median(result.values(series, way, "gateway_rss_mib")),
    )


def _rate(result: Result, series: str, way: str) -> Spread | None:
    """Through the gateway ÷ Kafka alone, within each round."""
    ours, theirs = (result.by_round(series, one, "mb_per_s") for one in (way, KAFKA))
    ratios = [ours[number] / theirs[number] for number in sorted(ours) if theirs.get(number)]
    return spread(ratios) if ratios else None


def _method(result: Result) -> str:
    settings = result.settings
    return (
        "One librdkafka client writes or reads"
        f" {settings['records']:,} records of {settings['record_bytes']:,} B in {settings['partitions']} partitions."
        " It is the client of “Produce and consume”, with the same settings. Kafka is one broker, and each partition"
        " has one replica. The client connects to the broker directly, or through a gateway. With TLS, the connections"
        " between the client and the gateway are encrypted, and those between the gateway and Kafka are not. All ways"
        " read the same records, from the page cache, and each way writes to a new topic. Each turn starts a new"
        " gateway. Before the first round, Kafka serves the same load without a gateway for"
        f" {settings['warm_up_seconds']} s. This load is not counted. A gigabyte is 10⁹ bytes of record values."
        " Client, gateway and Kafka share the cores of the machine, so that a gateway takes CPU time from the other"
        " two. On separate machines, only a gateway that keeps a core busy all the time limits the rate."
    )


def verdicts(result: Result) -> list[Verdict]:
    found = []
    for series in (CONSUME, PRODUCE):
        rate, cpu = _rate(result, series, HOLDFAST), result.values(series, HOLDFAST, "gateway_cpu_per_gb")
        if rate is not None:
            found.append(Verdict(f"{series} through a gateway: MB/s ÷ Kafka alone", RATE_TARGET, rate))
        if cpu:
            found.append(Verdict(f"{series} through a gateway: CPU time per GB", CPU_TARGETS[series], spread(cpu)))
    return found
