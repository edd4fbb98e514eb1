"""Heartbeats: what every member costs all the time."""

from __future__ import annotations

from typing import Final

from bench.load import Load, send
from bench.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from bench.members import describe, join_all, remove_all
from bench.servers import Broker, both
from bench.tables import Target, Verdict, figure, paragraph, table, times
from bench.wire import Wire, expect_none, request_frame
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from holdfast.wire.headers import decode_response

NAME: Final = "group-heartbeats"
SERIES: Final = "heartbeats"
RATE_TARGET: Final = Target("at least", 0.6)
P99_TARGET: Final = Target("at most", 1.5)
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
        frames = {name: _member_frames(broker) for name, broker in brokers.items()}
        for name, broker in brokers.items():
            _round(broker, frames[name], warm_up_seconds)
        for number in range(1, plan.rounds + 1):
            for name in alternating(brokers, number):
                rows.append(Row(SERIES, name, number, _round(brokers[name], frames[name], seconds)))
        for broker in brokers.values():
            remove_all(broker, GROUP)
    settings = {"seconds": seconds, "warm_up_seconds": warm_up_seconds, "members": MEMBERS}
    return Result(NAME, settings, rows)


def _member_frames(broker: Broker) -> list[bytes]:
    """The heartbeat of each member of a new group."""
    generation = int(join_all(broker, GROUP, MEMBERS, _HEARTBEAT_MS)["generations"])
    return [
        request_frame(HeartbeatRequest(GROUP, generation, member.member_id, member.group_instance_id), VERSION)
        for member in describe(broker, GROUP).members
    ]


def _round(broker: Broker, frames: list[bytes], seconds: float) -> dict[str, float]:
    with Wire(broker) as wire:
        good = wire.reply_to(frames[0])
    _, response = decode_response(HEARTBEAT, VERSION, _NO_ID + good)
    expect_none(response.error_code, "Heartbeat")
    return send(Load(len(frames), 1, seconds), broker, b"".join(frames), expected=good)


_SHOWN: Final = (
    ("heartbeats/s", "requests_per_s", 1.0),
    ("p50 ms", "p50_us", 1e-3),
    ("p99 ms", "p99_us", 1e-3),
    ("server CPU s per million", "server_cpu_per_million", 1.0),
    ("client CPU s per million", "client_cpu_per_million", 1.0),
    ("server cores", "server_cores", 1.0),
    ("client cores", "client_cores", 1.0),
)
_TARGETS: Final = {"requests_per_s": RATE_TARGET, "p99_us": P99_TARGET}


def section(result: Result) -> list[str]:
    text = (
        f"{result.settings['members']} static members of one stable group, each on a connection of its own with one"
        f" heartbeat (v{VERSION}) in flight, as fast as the server answers, by a load generator in C (`bench/load.c`)."
        " Every reply must be the one without an error, byte for byte."
        f" Rounds of {result.settings['seconds']} s; before the first, {result.settings['warm_up_seconds']} s of the"
        " same load on each server, uncounted. Load and server share the machine's cores. A member sends one heartbeat"
        " every 3 s by default: the rate times three is how many members a server could keep alive if it did nothing"
        " else. What limits Holdfast is one core: in its profile six tenths of a heartbeat are the kernel's send and"
        " read, one of each, and three tenths are Python; Kafka has more than one core at work on both."
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
    names = {"requests_per_s": "heartbeats/s ÷ Kafka", "p99_us": "heartbeats, p99 ÷ Kafka"}
    measured = ((names[name], target, result.ratio(SERIES, name)) for name, target in _TARGETS.items())
    return [Verdict(what, target, ratio) for what, target, ratio in measured if ratio is not None]
