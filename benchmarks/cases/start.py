"""The time until a broker answers, and its memory while it is idle."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating, spread
from benchmarks.proc import cpu_seconds, proportional_mib, resident_mib
from benchmarks.servers import Server, start_holdfast, start_kafka
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from tests.support.apache_kafka import ApacheKafka
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "start"
SERIES: Final = "start"
CONNECTIONS: Final = 500
START_TARGET: Final = Target("at most", 0.25)
CPU_TARGET: Final = Target("at most", 0.3, " s")
MEMORY_TARGET: Final = Target("at most", 0.15)

_API_VERSIONS_V0: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_SOCKET_TIMEOUT_S: Final = 30


def run(plan: Plan) -> Result:
    idle_seconds = plan.pick(full=3, quick=1)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's broker compiles its modules once, not at every start
    servers: dict[str, Callable[[], dict[str, float]]] = {
        HOLDFAST: lambda: _holdfast(idle_seconds),
        KAFKA: lambda: _kafka(idle_seconds),
    }
    for measure in () if plan.quick else servers.values():
        measure()  # not counted: the first start reads programs and bytecode from the disk
    rows: list[Row] = []
    for number in range(1, plan.rounds + 1):
        for name in alternating(servers, number):
            with plan.attempt(SERIES, name, number):
                rows.append(Row(SERIES, name, number, servers[name]()))
    return Result(NAME, {"idle_seconds": idle_seconds, "connections": CONNECTIONS, "compiled": True}, rows)


def _holdfast(idle_seconds: float) -> dict[str, float]:
    broker = HoldfastBroker()
    try:
        return {"start_s": start_holdfast(broker), **_at_rest(broker, idle_seconds)}
    finally:
        broker.__exit__(None, None, None)


def _kafka(idle_seconds: float) -> dict[str, float]:
    broker = ApacheKafka()
    try:
        return {"start_s": start_kafka(broker), **_at_rest(broker, idle_seconds)}
    finally:
        broker.__exit__(None, None, None)


def _at_rest(server: Server, idle_seconds: float) -> dict[str, float]:
    figures = {"start_cpu_s": cpu_seconds(server.pid)}
    time.sleep(idle_seconds)
    figures |= {"idle_rss_mib": resident_mib(server.pid), "idle_pss_mib": proportional_mib(server.pid)}
    with _idle_connections(server.address):
        time.sleep(idle_seconds)
        figures |= {"connected_rss_mib": resident_mib(server.pid), "connected_pss_mib": proportional_mib(server.pid)}
    return figures


@contextlib.contextmanager
def _idle_connections(address: tuple[str, int]) -> Iterator[None]:
    """Idle connections. Each has sent one request, which ensures that the server has accepted it."""
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection(address, timeout=_SOCKET_TIMEOUT_S))
            for _ in range(CONNECTIONS)
        ]
        for connection in opened:
            connection.sendall(_API_VERSIONS_V0)
        for connection in opened:
            if not connection.recv(65536):
                raise RuntimeError("the server closed an idle connection")
        yield


_TARGETS: Final = {"start_s": START_TARGET, "start_cpu_s": CPU_TARGET, "idle_rss_mib": MEMORY_TARGET}
_SHOWN: Final = (
    ("start to ready, s", "start_s"),
    ("CPU time from start to ready, s", "start_cpu_s"),
    ("idle memory (RSS), MiB", "idle_rss_mib"),
    ("idle memory (PSS), MiB", "idle_pss_mib"),
    (f"memory with {CONNECTIONS} idle connections (RSS), MiB", "connected_rss_mib"),
    (f"memory with {CONNECTIONS} idle connections (PSS), MiB", "connected_pss_mib"),
)


def section(result: Result) -> list[str]:
    compiled = " It compiles the Python modules for the later starts." if result.settings.get("compiled") else ""
    text = (
        "The time is measured from the start of the process until the server has answered ApiVersions and Metadata over"
        " a socket. The data directory is empty. The time to format Kafka's storage is not counted. The benchmark"
        " checks every 10 ms (Holdfast) or 20 ms (Kafka) whether the server is ready. Memory is measured"
        f" {result.settings['idle_seconds']} s after the server is ready, without clients. It is measured again with"
        f" {result.settings['connections']} idle connections, each of which has sent one request. Before the first"
        f" round, each server starts once. This start is not counted.{compiled} Kafka runs with the heap size that its"
        " start script sets, 1 GiB. The memory figures do not include heap pages that Kafka has not touched."
    )
    rows = [
        (
            what,
            figure(result.values(SERIES, HOLDFAST, name)),
            figure(result.values(SERIES, KAFKA, name)),
            times(result.ratio(SERIES, name)),
            str(_TARGETS.get(name, "")),
        )
        for what, name in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast", "Apache Kafka", "ratio", "target"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    cpu_s = result.values(SERIES, HOLDFAST, "start_cpu_s")
    measured = (
        ("time from start to ready ÷ Kafka", START_TARGET, result.ratio(SERIES, "start_s")),
        ("CPU time from start to ready", CPU_TARGET, spread(cpu_s) if cpu_s else None),
        ("idle memory (RSS) ÷ Kafka", MEMORY_TARGET, result.ratio(SERIES, "idle_rss_mib")),
    )
    return [Verdict(what, target, found) for what, target, found in measured if found is not None]
