"""Small requests: the cost of the protocol, compared with a minimal server on the same event loop."""

from __future__ import annotations

from typing import Final

from benchmarks.load import Load, send
from benchmarks.measure import ECHO, HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.servers import EchoServer, Server, both
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.headers import encode_request

NAME: Final = "requests"
TARGET: Final = Target("at least", 0.8)
MANY: Final = "500 connections, 1 in flight each"
PIPELINED: Final = "20 connections, 100 in flight each"
VERSION: Final = 3


def run(plan: Plan) -> Result:
    seconds, warm_up_seconds = plan.pick(full=3, quick=1), plan.pick(full=15, quick=1)
    loads = {MANY: Load(500, 1, seconds), PIPELINED: Load(20, 100, seconds)}
    frame = encode_request(ApiVersionsRequest("bench", "1"), VERSION, 0, "bench")
    rows: list[Row] = []
    with both() as brokers:
        reply_bytes = int(send(Load(1, 1, 1, max_requests=1), brokers[HOLDFAST], frame)["reply_bytes"])
        with EchoServer(reply_bytes) as echo:
            servers: dict[str, Server] = {**brokers, ECHO: echo}
            for name, server in servers.items():
                for load in loads.values():
                    send(
                        Load(load.connections, load.in_flight, warm_up_seconds / 2), server, frame, ordered=name != ECHO
                    )
            for number in range(1, plan.rounds + 1):
                for series, load in loads.items():
                    for name in alternating(servers, number):
                        with plan.attempt(series, name, number):
                            figures = send(load, servers[name], frame, ordered=name != ECHO)
                            rows.append(Row(series, name, number, figures))
    return Result(NAME, {"seconds": seconds, "warm_up_seconds": warm_up_seconds, "request_bytes": len(frame)}, rows)


_NAMES: Final = {HOLDFAST: "Holdfast", ECHO: "bare echo", KAFKA: "Apache Kafka"}
_HEAD: Final = (
    "",
    "requests/s",
    "latency p50, ms",
    "latency p99, ms",
    "server CPU s/M",
    "client CPU s/M",
    "requests/s: Holdfast ÷ this row",
    "target",
)


def section(result: Result) -> list[str]:
    sizes = {
        server: int(max(result.values(MANY, server, "reply_bytes"), default=0)) for server in (HOLDFAST, ECHO, KAFKA)
    }
    text = (
        f"A load generator in C (`benchmarks/load.c`) sends ApiVersions v{VERSION} requests of"
        f" {result.settings['request_bytes']} bytes. For every response, it checks the correlation id and measures the"
        f" latency. A round takes {result.settings['seconds']} s. Before the first round, each server serves the same"
        f" load for {result.settings['warm_up_seconds']} s. This load is not counted. The bare echo is a minimal"
        " server, an `asyncio.BufferedProtocol` on uvloop. It splits the received bytes into frames and answers each"
        " frame with fixed bytes of the same length as Holdfast's response. If one read returns several frames, the"
        " echo server writes all responses at once. Its rate is the maximum rate of this event loop. The target applies"
        " only to connections with one request in flight. With 100 requests in flight, the figures show the cost of a"
        " request without the system calls around it. This cost is about half of the difference between Holdfast and"
        f" the bare echo. The Python interpreter limits Holdfast's rate. A response of Holdfast has {sizes[HOLDFAST]}"
        f" bytes, and a response of the echo server has {sizes[ECHO]} bytes. A response of Kafka has {sizes[KAFKA]}"
        " bytes, because Kafka lists more APIs. The load generator and the server run on the same cores."
    )
    lines = [paragraph(text), ""]
    for series in (MANY, PIPELINED):
        rows = [_line(result, series, server) for server in _NAMES]
        lines += [f"### {series}", "", *table(_HEAD, rows)]
    return lines


def _line(result: Result, series: str, server: str) -> tuple[str, ...]:
    def of(name: str, scale: float = 1) -> str:
        return figure([value * scale for value in result.values(series, server, name)])

    return (
        _NAMES[server],
        of("requests_per_s"),
        of("p50_us", 1e-3),
        of("p99_us", 1e-3),
        of("server_cpu_per_million"),
        of("client_cpu_per_million"),
        "" if server == HOLDFAST else times(result.ratio(series, "requests_per_s", over=server)),
        str(TARGET) if server == ECHO and series == MANY else "",
    )


def verdicts(result: Result) -> list[Verdict]:
    ratio = result.ratio(MANY, "requests_per_s", over=ECHO)
    return [Verdict(f"small requests, {MANY}: requests/s ÷ bare echo", TARGET, ratio)] if ratio else []
