"""Heartbeats: the constant cost of every member."""

from __future__ import annotations

from typing import Final

from benchmarks.load import Load, send
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.members import describe, join_all, remove_all
from benchmarks.servers import Broker, both
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from benchmarks.wire import Wire, expect_none, request_frame
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from holdfast.wire.headers import decode_response

NAME: Final = "group-heartbeats"
SERIES: Final = "heartbeats"
RATE_TARGET: Final = Target("at least", 0.8)
P99_TARGET: Final = Target("at most", 1.0)
CPU_TARGET: Final = Target("at most", 1.0)
VERSION: Final = 4
MEMBERS: Final = 500
GROUP: Final = "heartbeats"

_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_HEARTBEAT_MS: Final = 100
_NO_ID: Final = bytes(4)


def run(plan: Plan) -> Result:
    seconds, warm_up_seconds = plan.pick(full=3, quick=1), plan.pick(full=10, quick=1)
    rows: list[Row] = []
    with both(_NO_DELAY, _NO_DELAY) as brokers:
        frames = {name: heartbeat_frames(broker, GROUP, MEMBERS, _HEARTBEAT_MS) for name, broker in brokers.items()}
        for name, broker in brokers.items():
            send_heartbeats(broker, frames[name], warm_up_seconds)
        for number in range(1, plan.rounds + 1):
            for name in alternating(brokers, number):
                with plan.attempt(SERIES, name, number):
                    rows.append(Row(SERIES, name, number, send_heartbeats(brokers[name], frames[name], seconds)))
        for broker in brokers.values():
            remove_all(broker, GROUP)
    settings = {"seconds": seconds, "warm_up_seconds": warm_up_seconds, "members": MEMBERS}
    return Result(NAME, settings, rows)


def heartbeat_frames(broker: Broker, group: str, members: int, interval_ms: int) -> list[bytes]:
    """The heartbeat of each member of a new group."""
    generation = int(join_all(broker, group, members, interval_ms)["generations"])
    return [
        request_frame(HeartbeatRequest(group, generation, member.member_id, member.group_instance_id), VERSION)
        for member in describe(broker, group).members
    ]


def send_heartbeats(broker: Broker, frames: list[bytes], seconds: float) -> dict[str, float]:
    with Wire(broker) as wire:
        good = wire.reply_to(frames[0])
    _, response = decode_response(HEARTBEAT, VERSION, _NO_ID + good)
    expect_none(response.error_code, "Heartbeat")
    return send(Load(len(frames), 1, seconds), broker, b"".join(frames), expected=good)


_SHOWN: Final = (
    ("heartbeats/s", "requests_per_s", 1.0),
    ("latency p50, ms", "p50_us", 1e-3),
    ("latency p99, ms", "p99_us", 1e-3),
    ("server CPU s per million heartbeats", "server_cpu_per_million", 1.0),
    ("client CPU s per million heartbeats", "client_cpu_per_million", 1.0),
    ("cores used by the server", "server_cores", 1.0),
    ("cores used by the client", "client_cores", 1.0),
)
_TARGETS: Final = {"requests_per_s": RATE_TARGET, "p99_us": P99_TARGET, "server_cpu_per_million": CPU_TARGET}


def section(result: Result) -> list[str]:
    text = (
        f"Each of the {result.settings['members']} static members of one stable group has its own connection, with one"
        f" heartbeat (v{VERSION}) in flight. A load generator in C (`benchmarks/load.c`) sends the heartbeats as fast"
        " as the server responds. Every response must be identical, byte for byte, to a response without an error. A"
        f" round takes {result.settings['seconds']} s. Before the first round, each server serves the same load for"
        f" {result.settings['warm_up_seconds']} s. This load is not counted. The load generator and the server run on"
        " the same cores. By default, a member sends one heartbeat every 3 s. A server that handles only heartbeats"
        " could therefore serve three times as many members as it handles heartbeats per second. Holdfast uses only one"
        " core, and Kafka uses more than one core."
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
    names = {
        "requests_per_s": "heartbeats/s ÷ Kafka",
        "p99_us": "heartbeats, latency p99 ÷ Kafka",
        "server_cpu_per_million": "heartbeats, server CPU time per heartbeat ÷ Kafka",
    }
    measured = ((names[name], target, result.ratio(SERIES, name)) for name, target in _TARGETS.items())
    return [Verdict(what, target, ratio) for what, target, ratio in measured if ratio is not None]
