"""The cost of registered members and standbys for an idle broker: none while they are idle."""

from __future__ import annotations

import itertools
import time
from typing import Final

from benchmarks.extensions import configure, extensions_of, register
from benchmarks.load import Load, send
from benchmarks.measure import HOLDFAST, Plan, Result, Row, alternating, spread
from benchmarks.members import JOIN_VERSION, PROTOCOL, PROTOCOL_TYPE, SESSION_MS, SUBSCRIPTION, join_alone, remove_all
from benchmarks.proc import cpu_seconds
from benchmarks.tables import Target, Verdict, figure, paragraph, table
from benchmarks.wire import Wire, expect_none, request_frame
from holdfast.wire.apis.cancel_registration import CancelRegistrationRequest
from holdfast.wire.apis.heartbeat import HEARTBEAT as HEARTBEAT_API
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.headers import decode_response
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "idle-extensions"
NONE: Final = "neither"
REGISTERED: Final = "registered members"
STANDBYS: Final = "standbys"
HEARTBEAT: Final = "heartbeat of"
MEMBER: Final = "a member with an assignment"
STANDBY: Final = "a standby"
CPU_TARGET: Final = Target("at most", 5, " CPU ms per second")
HEARTBEAT_TARGET: Final = Target("at most", 1.2)
HEARTBEAT_VERSION: Final = 4
_NO_ID: Final = bytes(4)
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    count, seconds = plan.pick(full=1_000, quick=20), plan.pick(full=10, quick=1)
    rows: list[Row] = []
    with HoldfastBroker() as broker:
        for number in range(1, plan.rounds + 1):
            for series in alternating((NONE, REGISTERED, STANDBYS), number):
                with plan.attempt(series, HOLDFAST, number):
                    rows += _round(broker, series, count, seconds, number)
    return Result(NAME, {"count": count, "seconds": seconds}, rows)


def _round(broker: HoldfastBroker, series: str, count: int, seconds: float, number: int) -> list[Row]:
    """A stable group with one member, and in addition the members of the series."""
    group = f"idle-{next(_numbers)}"
    names = [f"beside-{n:04}" for n in range(count)]
    rows: list[Row] = []
    with Wire(broker) as wire:
        wire.wait_for_group(group)
        member_id, generation = join_alone(wire, group)
        if series == REGISTERED:
            register(broker, group, names)
        elif series == STANDBYS:
            configure(broker, group, target_group_size=1)
            standby_ids = [_join_as_standby(wire, group, name) for name in names]
        _expect(
            broker, group, waiting=count if series == STANDBYS else 0, expected=count if series == REGISTERED else 0
        )
        rows.append(Row(series, HOLDFAST, number, {"cpu_ms_per_s": _idle(broker, seconds)}))
        if series == STANDBYS:
            for whose, who in ((MEMBER, member_id), (STANDBY, standby_ids[0])):
                figures = _heartbeats(broker, HeartbeatRequest(group, generation, who), seconds / 5)
                rows.append(Row(f"{HEARTBEAT} {whose}", HOLDFAST, number, figures))
        if series == REGISTERED:
            expect_none(wire.ask(CancelRegistrationRequest(group), 0).error_code, "CancelRegistration")
    remove_all(broker, group)
    return rows


def _join_as_standby(wire: Wire, group: str, name: str) -> str:
    """All on one connection. They are answered at once, and there are no further events before their sessions
    expire."""
    offered = [JoinGroupRequestProtocol(PROTOCOL, SUBSCRIPTION)]
    asked = JoinGroupRequest(group, SESSION_MS, SESSION_MS, "", name, PROTOCOL_TYPE, offered)
    joined = wire.ask(asked, JOIN_VERSION)
    expect_none(joined.error_code, "JoinGroup")
    return str(joined.member_id)


def _expect(broker: HoldfastBroker, group: str, *, waiting: int, expected: int) -> None:
    found = extensions_of(broker, group)
    if (len(found.standbys), len(found.expected)) != (waiting, expected):
        raise RuntimeError(f"{len(found.standbys)} wait and {len(found.expected)} are expected")


def _idle(broker: HoldfastBroker, seconds: float) -> float:
    """Milliseconds of CPU time for a second without requests."""
    before = cpu_seconds(broker.pid)
    time.sleep(seconds)
    return (cpu_seconds(broker.pid) - before) * 1000 / seconds


def _heartbeats(broker: HoldfastBroker, message: HeartbeatRequest, seconds: float) -> dict[str, float]:
    frame = request_frame(message, HEARTBEAT_VERSION)
    with Wire(broker) as wire:
        good = wire.reply_to(frame)
    _, response = decode_response(HEARTBEAT_API, HEARTBEAT_VERSION, _NO_ID + good)
    expect_none(response.error_code, "Heartbeat")
    return send(Load(1, 1, seconds), broker, frame, expected=good)


def section(result: Result) -> list[str]:
    count = result.settings["count"]
    text = (
        f"One broker has one group with one idle member. The group also has {count:,} registered members that have not"
        f" joined, or {count:,} standbys, or neither. The benchmark measures the CPU time of the broker over"
        f" {result.settings['seconds']} s without requests. The kernel counts CPU time in steps of 10 ms. Standbys send"
        " heartbeats like all other members. The benchmark therefore also compares the CPU time for a heartbeat of a"
        " standby with the CPU time for a heartbeat of a member with an assignment. These heartbeats use one connection"
        " with one request in flight. Apache Kafka has neither registrations nor standbys."
    )
    idle = [
        (f"idle group with {series}: CPU ms per second", figure(result.values(series, HOLDFAST, "cpu_ms_per_s")))
        for series in _IDLE
    ]
    beats = [
        (
            f"{HEARTBEAT} {whose}: server CPU s per million heartbeats",
            figure(result.values(f"{HEARTBEAT} {whose}", HOLDFAST, "server_cpu_per_million")),
        )
        for whose in (MEMBER, STANDBY)
    ]
    return [paragraph(text), "", *table(("", "Holdfast"), [*idle, *beats])]


_IDLE: Final = (NONE, REGISTERED, STANDBYS)


def verdicts(result: Result) -> list[Verdict]:
    count = result.settings["count"]
    found: list[Verdict] = []
    nothing = result.values(NONE, HOLDFAST, "cpu_ms_per_s")
    for series in (REGISTERED, STANDBYS):
        with_them = result.values(series, HOLDFAST, "cpu_ms_per_s")
        more = [one - other for one, other in zip(with_them, nothing, strict=False)]
        if more:
            found.append(Verdict(f"{count:,} idle {series}: additional CPU time", CPU_TARGET, spread(more)))
    ours = result.values(f"{HEARTBEAT} {STANDBY}", HOLDFAST, "server_cpu_per_million")
    theirs = result.values(f"{HEARTBEAT} {MEMBER}", HOLDFAST, "server_cpu_per_million")
    ratios = [one / other for one, other in zip(ours, theirs, strict=False) if other]
    if ratios:
        found.append(
            Verdict("CPU time per heartbeat: standby ÷ member with an assignment", HEARTBEAT_TARGET, spread(ratios))
        )
    return found
