"""A new group whose members are all registered forms when the last one has joined, without the initial delay."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from typing import Any, Final

from benchmarks.extensions import register
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating, spread
from benchmarks.members import (
    ASSIGNMENT,
    JOIN_VERSION,
    PATIENCE_SECONDS,
    PROTOCOL,
    PROTOCOL_TYPE,
    SESSION_MS,
    SUBSCRIPTION,
    SYNC_VERSION,
    describe,
    remove_all,
)
from benchmarks.servers import Broker, both, settle
from benchmarks.steady import until
from benchmarks.tables import Target, Verdict, figure, paragraph, table
from benchmarks.wire import Wire, expect_none, request_frame
from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.headers import decode_response

NAME: Final = "forming"
SERIES: Final = "forming"
REGISTERED: Final = "holdfast, registered"
TRIPS_TARGET: Final = Target("at most", 1, " request")
TIME_TARGET: Final = Target("at most", 300, " ms")
"""A tenth of the initial delay, which is enough for a hundred responses without a wait."""
_PINGS: Final = 25
_PING_VERSION: Final = 0
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    members = plan.pick(full=100, quick=10)
    rows: list[Row] = []
    with both() as brokers:
        how = {REGISTERED: brokers[HOLDFAST], HOLDFAST: brokers[HOLDFAST], KAFKA: brokers[KAFKA]}
        for broker in brokers.values():
            _round(broker, members, registered=False)
        for number in range(1, plan.rounds + 1):
            for name in alternating(how, number):
                settle()
                with plan.attempt(SERIES, name, number):
                    rows.append(Row(SERIES, name, number, _round(how[name], members, registered=name == REGISTERED)))
    return Result(NAME, {"members": members}, rows)


def _round(broker: Broker, count: int, *, registered: bool) -> dict[str, float]:
    group = f"forming-{next(_numbers)}"
    names = [f"member-{number:03}" for number in range(count)]
    with contextlib.ExitStack() as stack:
        wires = {name: stack.enter_context(Wire(broker)) for name in names}
        wires[names[0]].wait_for_group(group)
        round_trip_s = _round_trip(wires[names[-1]])
        if registered:
            register(broker, group, names)
        for name in names[:-1]:
            wires[name].send(request_frame(_join(group, name), JOIN_VERSION))
        _await_members(broker, group, count - 1)
        began = time.monotonic()
        last, trips = _join_last(wires[names[-1]], group, names[-1])
        joined_s = time.monotonic() - began
        joined = {name: _joined(wires[name]) for name in names[:-1]} | {names[-1]: last}
        _sync_all(group, wires, joined)
        stable_s = time.monotonic() - began
        state = describe(broker, group)
    one_generation = len({response.generation_id for response in joined.values()}) == 1
    if state.group_state != "Stable" or len(state.members) != count or not one_generation:
        raise RuntimeError(f"{len(state.members)} of {count} members, and the group is {state.group_state}")
    remove_all(broker, group)
    return {
        "joined_ms": joined_s * 1000,
        "stable_ms": stable_s * 1000,
        "round_trip_ms": round_trip_s * 1000,
        "join_round_trips": trips,
    }


def _join(group: str, name: str, member_id: str = "") -> JoinGroupRequest:
    offered = [JoinGroupRequestProtocol(PROTOCOL, SUBSCRIPTION)]
    return JoinGroupRequest(group, SESSION_MS, SESSION_MS, member_id, name, PROTOCOL_TYPE, offered)


def _join_last(wire: Wire, group: str, name: str) -> tuple[Any, int]:
    """The response, and the number of joins until it succeeded."""
    member_id, trips = "", 0
    while True:
        wire.send(request_frame(_join(group, name, member_id), JOIN_VERSION))
        _, response = decode_response(JOIN_GROUP, JOIN_VERSION, wire.receive())
        trips += 1
        if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            expect_none(response.error_code, "JoinGroup")
            return response, trips
        member_id = response.member_id


def _await_members(broker: Broker, group: str, count: int) -> None:
    """Waits until this many joins have arrived; they have no response yet."""
    until(lambda: len(describe(broker, group).members) >= count, f"{count} members have joined", PATIENCE_SECONDS)


def _joined(wire: Wire) -> Any:
    _, response = decode_response(JOIN_GROUP, JOIN_VERSION, wire.receive())
    expect_none(response.error_code, "JoinGroup")
    return response


def _sync_all(group: str, wires: dict[str, Wire], joined: dict[str, Any]) -> None:
    (leader,) = (name for name, response in joined.items() if response.members)
    assignments = [SyncGroupRequestAssignment(member.member_id, ASSIGNMENT) for member in joined[leader].members]
    for name in sorted(wires, key=lambda name: name != leader):
        response = joined[name]
        request = SyncGroupRequest(
            group,
            response.generation_id,
            response.member_id,
            name,
            PROTOCOL_TYPE,
            PROTOCOL,
            assignments if name == leader else [],
        )
        wires[name].send(request_frame(request, SYNC_VERSION))
    for wire in wires.values():
        _, synced = decode_response(SYNC_GROUP, SYNC_VERSION, wire.receive())
        expect_none(synced.error_code, "SyncGroup")


def _round_trip(wire: Wire) -> float:
    frame = request_frame(ApiVersionsRequest(), _PING_VERSION)
    took: list[float] = []
    for _ in range(_PINGS):
        began = time.monotonic()
        wire.reply_to(frame)
        took.append(time.monotonic() - began)
    return statistics.median(took)


_SHOWN: Final = (
    ("time from the last JoinGroup to its response, ms", "joined_ms"),
    ("time from the last JoinGroup until all members have their assignment, ms", "stable_ms"),
    ("JoinGroup requests that the last member sends until it has joined", "join_round_trips"),
    ("round trip of an ApiVersions request on the same connection, ms", "round_trip_ms"),
)


def section(result: Result) -> list[str]:
    text = (
        f"{result.settings['members']} static members (JoinGroup v{JOIN_VERSION}), each on its own connection, join a"
        " new group. The last member sends its JoinGroup after all other members have sent theirs. The time is measured"
        " from this request until the slowest member has its assignment. DescribeGroups must then report the state"
        " Stable with all members. All members must be in the same generation. Both servers have"
        " `group.initial.rebalance.delay.ms=3000`. Without registrations, a new group waits at least that long for"
        " further members. One Python process has the sockets of all members. The figures in all three columns include"
        " the time in which this process reads the responses of all members."
    )
    rows = [
        (what, *(figure(result.values(SERIES, name, value)) for name in (REGISTERED, HOLDFAST, KAFKA)))
        for what, value in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast, registered", "Holdfast", "Apache Kafka"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    trips = result.values(SERIES, REGISTERED, "join_round_trips")
    if not trips:
        return []
    stable = result.values(SERIES, REGISTERED, "stable_ms")
    what = f"forming a group of {result.settings['members']} registered members"
    return [
        Verdict(f"{what}: JoinGroup requests of the last member", TRIPS_TARGET, spread(trips)),
        Verdict(
            f"{what}: time from the last JoinGroup until all members have their assignment", TIME_TARGET, spread(stable)
        ),
    ]
