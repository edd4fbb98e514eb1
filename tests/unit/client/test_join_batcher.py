"""Members of one process hand in their joins, and these go out as one request; the broker is written by the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.client import join_batcher
from holdfast.client.addresses import Address
from holdfast.client.join_batcher import JoinBatcher, PendingJoin
from holdfast.client.runtime import SYSTEM
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from holdfast.wire.apis.join_groups import JOIN_GROUPS, JoinGroupsRequest, JoinGroupsResponse, JoinGroupsResult
from holdfast.wire.error_codes import ErrorCode
from tests.support.eventually import eventually
from tests.unit.client.scripted import ScriptedServer
from tests.unit.client.scripted_group import Group, network_of

ALONE = "joins by itself"


def joined(request: JoinGroupsRequest) -> JoinGroupsResponse:
    """Every join succeeds, with a member id that has its index in the request."""
    results = [
        JoinGroupsResult(generation_id=7, protocol_name="range", leader="m0", member_id=f"m{number}")
        for number in range(len(request.members))
    ]
    return JoinGroupsResponse(results=results)


class BatcherHarness:
    """A batcher in front of a broker, and the outcome of each join."""

    def __init__(self, server: ScriptedServer, members: int) -> None:
        self.batcher = JoinBatcher(members, runtime=SYSTEM)
        self.outcomes: dict[str, Any] = {}
        self._server = server

    def submit(
        self, name: str, *, static: bool = True, member_id: str = "", reason: str = "", within_s: float = 30.0
    ) -> PendingJoin:
        def on_outcome(outcome: Any) -> None:
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
        join = PendingJoin(network_of(self._server), address, request, deadline, on_outcome, lambda: on_outcome(ALONE))
        self.batcher.submit(join)
        return join

    def outcome(self, name: str) -> Any:
        eventually(lambda: name in self.outcomes, f"what became of {name}")
        return self.outcomes[name]


def answering(answer: Callable[[Any], Any]) -> Group:
    return Group((JOIN_GROUPS, answer))


def test_simultaneous_joins_are_one_request_and_each_has_its_own_answer() -> None:
    group = answering(joined)
    with ScriptedServer(group) as server:
        harness = BatcherHarness(server, 3)

        for name in ("a", "b", "c"):
            harness.submit(name)

        answers = [harness.outcome(name) for name in ("a", "b", "c")]
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
    monkeypatch.setattr(join_batcher, "MAX_BATCH_SIZE", 2)
    group = answering(joined)
    with ScriptedServer(group) as server:
        harness = BatcherHarness(server, 4)

        for name in ("a", "b", "c", "d"):
            harness.submit(name)

        answers = [harness.outcome(name) for name in ("a", "b", "c", "d")]
    assert sorted(len(request.members) for request in group.messages(JOIN_GROUPS)) == [2, 2]
    assert all(isinstance(one, JoinGroupResponse) for one in answers)


def test_a_single_join_is_a_request_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_batcher, "EXPECTED_TIMEOUT_S", 0.05)
    group = answering(joined)
    with ScriptedServer(group) as server:
        harness = BatcherHarness(server, 2)

        harness.submit("a")

        assert harness.outcome("a") == ALONE
    assert group.messages(JOIN_GROUPS) == []


def test_all_members_are_waited_for_when_they_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_batcher, "EXPECTED_TIMEOUT_S", 30.0)
    group = answering(joined)
    with ScriptedServer(group) as server:
        harness = BatcherHarness(server, 2)
        harness.submit("a")
        time.sleep(5 * join_batcher.QUIET_PERIOD_S)  # longer than it would be waited for later
        assert harness.outcomes == {}

        harness.submit("b")

        assert harness.outcome("a").member_id == "m0"
        assert harness.outcome("b").member_id == "m1"


def test_later_a_lull_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_batcher, "MAX_COLLECT_S", 30.0)
    with ScriptedServer(answering(joined)) as server:
        harness = BatcherHarness(server, 2)
        for name in ("a", "b"):
            harness.submit(name)
        assert harness.outcome("b").member_id == "m1"

        harness.submit("again")

        assert harness.outcome("again") == ALONE


def test_a_member_with_another_reason_does_not_wait_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_batcher, "EXPECTED_TIMEOUT_S", 0.05)
    group = answering(joined)
    with ScriptedServer(group) as server:
        harness = BatcherHarness(server, 2)

        harness.submit("a", reason="group is already rebalancing")
        harness.submit("b", reason="cached metadata has changed")

        assert [harness.outcome("a"), harness.outcome("b")] == [ALONE, ALONE]
    assert group.messages(JOIN_GROUPS) == []


def test_where_some_are_sent_for_an_id_the_others_wait_and_go_again_with_them() -> None:
    """KIP-394."""

    def answer(request: JoinGroupsRequest) -> JoinGroupsResponse:
        if all(one.member_id or one.group_instance_id for one in request.members):
            return joined(request)
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
        harness = BatcherHarness(server, 2)
        harness.submit("static")
        harness.submit("dynamic", static=False)
        response = harness.outcome("dynamic")
        assert (response.error_code, response.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "fresh")
        assert "static" not in harness.outcomes

        harness.submit("came back", static=False, member_id="fresh")

        assert {harness.outcome("static").member_id, harness.outcome("came back").member_id} == {"m0", "m1"}
    first, second = group.messages(JOIN_GROUPS)
    assert sorted(one.group_instance_id or one.member_id for one in second.members) == ["fresh", "static"]
    assert len(first.members) == 2


@pytest.mark.parametrize(
    "answer",
    [lambda _request: None, lambda _request: JoinGroupsResponse(results=[])],
    ids=["connection lost", "too few answers"],
)
def test_without_a_response_every_member_gets_the_error(answer: Callable[[Any], Any]) -> None:
    with ScriptedServer(answering(answer)) as server:
        harness = BatcherHarness(server, 2)

        for name in ("a", "b"):
            harness.submit(name)

        assert [harness.outcome("a"), harness.outcome("b")] == [None, None]


def test_an_answer_that_does_not_come_in_time_is_none() -> None:
    released = threading.Event()

    def answer(request: JoinGroupsRequest) -> JoinGroupsResponse:
        released.wait(30)
        return joined(request)

    with ScriptedServer(answering(answer)) as server:
        harness = BatcherHarness(server, 2)

        for name in ("a", "b"):
            harness.submit(name, within_s=0.2)

        assert [harness.outcome("a"), harness.outcome("b")] == [None, None]
        released.set()


def test_a_join_cancelled_before_the_request_is_not_in_it() -> None:
    group = answering(joined)
    with ScriptedServer(group) as server:
        harness = BatcherHarness(server, 3)
        gone = harness.submit("gone")
        harness.submit("a")

        harness.batcher.cancel(gone)
        harness.submit("b")
        harness.submit("c")

        assert harness.outcome("c").member_id == "m2"
    (request,) = group.messages(JOIN_GROUPS)
    assert [one.group_instance_id for one in request.members] == ["a", "b", "c"]
    assert "gone" not in harness.outcomes


def test_a_join_cancelled_after_the_request_gets_no_answer_and_the_others_do() -> None:
    released = threading.Event()

    def answer(request: JoinGroupsRequest) -> JoinGroupsResponse:
        assert released.wait(30)
        return joined(request)

    group = answering(answer)
    with ScriptedServer(group) as server:
        harness = BatcherHarness(server, 2)
        gone = harness.submit("gone")
        harness.submit("stays")
        group.wait_for(JOIN_GROUPS)

        harness.batcher.cancel(gone)
        released.set()

        assert harness.outcome("stays").member_id == "m1"
    assert "gone" not in harness.outcomes


def test_when_the_last_has_gone_the_connection_is_closed() -> None:
    ended = threading.Event()

    def answer(_request: JoinGroupsRequest) -> None:
        group.connections(JOIN_GROUPS)[0].expect_end()
        ended.set()

    group = answering(answer)
    with ScriptedServer(group) as server:
        harness = BatcherHarness(server, 2)
        joins = [harness.submit(name) for name in ("a", "b")]
        group.wait_for(JOIN_GROUPS)

        for join in joins:
            harness.batcher.cancel(join)

        assert ended.wait(20)
    assert harness.outcomes == {}
