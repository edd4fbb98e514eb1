"""Members of one process hand in their joins, and these go out as one request; the broker is written by the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.client import join_desk
from holdfast.client.addresses import Address
from holdfast.client.join_desk import HandedIn, JoinDesk
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from holdfast.wire.apis.join_groups import JOIN_GROUPS, JoinGroupsRequest, JoinGroupsResponse, JoinGroupsResult
from holdfast.wire.error_codes import ErrorCode
from tests.support.eventually import eventually
from tests.unit.client.scripted import ScriptedServer
from tests.unit.client.scripted_group import Group, network_of

ALONE = "joins by itself"


def seated(request: JoinGroupsRequest) -> JoinGroupsResponse:
    """Everybody gets in, under a name that tells its place in the request."""
    results = [
        JoinGroupsResult(generation_id=7, protocol_name="range", leader="m0", member_id=f"m{number}")
        for number in range(len(request.members))
    ]
    return JoinGroupsResponse(results=results)


class Hall:
    """A desk before a broker, and what became of each join."""

    def __init__(self, server: ScriptedServer, members: int) -> None:
        self.desk = JoinDesk(members)
        self.outcomes: dict[str, Any] = {}
        self._server = server

    def hand_in(
        self, name: str, *, static: bool = True, member_id: str = "", reason: str = "", within_s: float = 30.0
    ) -> HandedIn:
        def heard(outcome: Any) -> None:
            self.outcomes[name] = outcome

        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=name if static else None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", name.encode())],
            reason=reason,
        )
        address = Address(*self._server.address)
        deadline = time.monotonic() + within_s
        join = HandedIn(network_of(self._server), address, request, deadline, heard, lambda: heard(ALONE))
        self.desk.hand_in(join)
        return join

    def outcome(self, name: str) -> Any:
        eventually(lambda: name in self.outcomes, f"what became of {name}")
        return self.outcomes[name]


def answering(answer: Callable[[Any], Any]) -> Group:
    return Group((JOIN_GROUPS, answer))


def test_who_comes_together_joins_in_one_request_and_each_has_its_own_answer() -> None:
    group = answering(seated)
    with ScriptedServer(group) as server:
        hall = Hall(server, 3)

        for name in ("a", "b", "c"):
            hall.hand_in(name)

        answers = [hall.outcome(name) for name in ("a", "b", "c")]
    (request,) = group.messages(JOIN_GROUPS)
    assert [(one.group_instance_id, one.protocols[0].metadata) for one in request.members] == [
        ("a", b"a"),
        ("b", b"b"),
        ("c", b"c"),
    ]
    assert (request.group_id, request.protocol_type) == ("g", "consumer")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (10_000, 60_000)
    assert all(isinstance(one, JoinGroupResponse) for one in answers)
    assert [(one.member_id, one.leader, one.generation_id) for one in answers] == [
        ("m0", "m0", 7),
        ("m1", "m0", 7),
        ("m2", "m0", 7),
    ]


def test_more_than_a_broker_takes_in_one_request_join_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_desk, "MOST_TOGETHER", 2)
    group = answering(seated)
    with ScriptedServer(group) as server:
        hall = Hall(server, 4)

        for name in ("a", "b", "c", "d"):
            hall.hand_in(name)

        answers = [hall.outcome(name) for name in ("a", "b", "c", "d")]
    assert sorted(len(request.members) for request in group.messages(JOIN_GROUPS)) == [2, 2]
    assert all(isinstance(one, JoinGroupResponse) for one in answers)


def test_who_comes_alone_joins_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_desk, "EXPECTED_WITHIN_S", 0.05)
    group = answering(seated)
    with ScriptedServer(group) as server:
        hall = Hall(server, 2)

        hall.hand_in("a")

        assert hall.outcome("a") == ALONE
    assert group.messages(JOIN_GROUPS) == []


def test_all_members_are_waited_for_when_they_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_desk, "EXPECTED_WITHIN_S", 30.0)
    group = answering(seated)
    with ScriptedServer(group) as server:
        hall = Hall(server, 2)
        hall.hand_in("a")
        time.sleep(5 * join_desk.LULL_S)  # longer than it would be waited for later
        assert hall.outcomes == {}

        hall.hand_in("b")

        assert hall.outcome("a").member_id == "m0"
        assert hall.outcome("b").member_id == "m1"


def test_later_a_lull_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_desk, "LONGEST_GATHERING_S", 30.0)
    with ScriptedServer(answering(seated)) as server:
        hall = Hall(server, 2)
        for name in ("a", "b"):
            hall.hand_in(name)
        assert hall.outcome("b").member_id == "m1"

        hall.hand_in("again")

        assert hall.outcome("again") == ALONE


def test_who_has_another_reason_is_not_kept_waiting_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_desk, "EXPECTED_WITHIN_S", 0.05)
    group = answering(seated)
    with ScriptedServer(group) as server:
        hall = Hall(server, 2)

        hall.hand_in("a", reason="group is already rebalancing")
        hall.hand_in("b", reason="cached metadata has changed")

        assert [hall.outcome("a"), hall.outcome("b")] == [ALONE, ALONE]
    assert group.messages(JOIN_GROUPS) == []


def test_where_some_are_sent_for_an_id_the_others_wait_and_go_again_with_them() -> None:
    """KIP-394."""

    def answer(request: JoinGroupsRequest) -> JoinGroupsResponse:
        if all(one.member_id or one.group_instance_id for one in request.members):
            return seated(request)
        return JoinGroupsResponse(
            results=[
                JoinGroupsResult(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=one.member_id)
                if one.member_id or one.group_instance_id
                else JoinGroupsResult(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="fresh")
                for one in request.members
            ]
        )

    group = answering(answer)
    with ScriptedServer(group) as server:
        hall = Hall(server, 2)
        hall.hand_in("static")
        hall.hand_in("dynamic", static=False)
        told = hall.outcome("dynamic")
        assert (told.error_code, told.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "fresh")
        assert "static" not in hall.outcomes

        hall.hand_in("came back", static=False, member_id="fresh")

        assert {hall.outcome("static").member_id, hall.outcome("came back").member_id} == {"m0", "m1"}
    first, second = group.messages(JOIN_GROUPS)
    assert sorted(one.group_instance_id or one.member_id for one in second.members) == ["fresh", "static"]
    assert len(first.members) == 2


@pytest.mark.parametrize(
    "answer",
    [lambda _request: None, lambda _request: JoinGroupsResponse(results=[])],
    ids=["connection lost", "too few answers"],
)
def test_without_an_answer_everybody_is_told_so(answer: Callable[[Any], Any]) -> None:
    with ScriptedServer(answering(answer)) as server:
        hall = Hall(server, 2)

        for name in ("a", "b"):
            hall.hand_in(name)

        assert [hall.outcome("a"), hall.outcome("b")] == [None, None]


def test_an_answer_that_does_not_come_in_time_is_none() -> None:
    released = threading.Event()

    def answer(request: JoinGroupsRequest) -> JoinGroupsResponse:
        released.wait(30)
        return seated(request)

    with ScriptedServer(answering(answer)) as server:
        hall = Hall(server, 2)

        for name in ("a", "b"):
            hall.hand_in(name, within_s=0.2)

        assert [hall.outcome("a"), hall.outcome("b")] == [None, None]
        released.set()


def test_who_goes_before_the_request_is_not_in_it() -> None:
    group = answering(seated)
    with ScriptedServer(group) as server:
        hall = Hall(server, 3)
        gone = hall.hand_in("gone")
        hall.hand_in("a")

        hall.desk.withdraw(gone)
        hall.hand_in("b")
        hall.hand_in("c")

        assert hall.outcome("c").member_id == "m2"
    (request,) = group.messages(JOIN_GROUPS)
    assert [one.group_instance_id for one in request.members] == ["a", "b", "c"]
    assert "gone" not in hall.outcomes


def test_who_goes_after_it_is_not_answered_and_the_others_are() -> None:
    released = threading.Event()

    def answer(request: JoinGroupsRequest) -> JoinGroupsResponse:
        assert released.wait(30)
        return seated(request)

    group = answering(answer)
    with ScriptedServer(group) as server:
        hall = Hall(server, 2)
        gone = hall.hand_in("gone")
        hall.hand_in("stays")
        group.wait_for(JOIN_GROUPS)

        hall.desk.withdraw(gone)
        released.set()

        assert hall.outcome("stays").member_id == "m1"
    assert "gone" not in hall.outcomes


def test_when_the_last_has_gone_the_connection_is_closed() -> None:
    ended = threading.Event()

    def answer(_request: JoinGroupsRequest) -> None:
        group.connections(JOIN_GROUPS)[0].expect_end()
        ended.set()

    group = answering(answer)
    with ScriptedServer(group) as server:
        hall = Hall(server, 2)
        joins = [hall.hand_in(name) for name in ("a", "b")]
        group.wait_for(JOIN_GROUPS)

        for join in joins:
            hall.desk.withdraw(join)

        assert ended.wait(20)
    assert hall.outcomes == {}
