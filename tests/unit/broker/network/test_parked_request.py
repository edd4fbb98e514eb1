"""A parked request: when its response is delivered, in which form, and that a cancelled one delivers nothing."""

import asyncio
from collections.abc import Callable

import pytest

from holdfast.broker.api.replies import EncodedParts
from holdfast.broker.api.request import ClientSession, RequestContext
from holdfast.broker.groups.service import PendingReply
from holdfast.broker.network.parked_request import ParkedRequest
from holdfast.broker.network.request_header import RequestHeader
from holdfast.broker.util.slices import SliceScheduler
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupResponse, JoinGroupResponseMember
from holdfast.wire.message import decoder, encode

VERSION = 9


def parked() -> ParkedRequest:
    listener: object = None
    session = ClientSession(listener, None, lambda: None)  # type: ignore[arg-type]  # no listener is asked here
    header = RequestHeader(
        api=JOIN_GROUP,
        function=lambda *_: None,
        context=RequestContext(session, VERSION, "c"),
        rest=b"",
        position=0,
        decode=decoder(JOIN_GROUP.request, VERSION),
        reply_start=lambda *_: b"",
        reply_header_bytes=0,
        is_repeated=False,
    )
    return ParkedRequest(header, 1, b"", 0.0, SliceScheduler())


def response(members: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_name="range",
        leader="a",
        member_id="a",
        members=[JoinGroupResponseMember(f"member-{number}", None, b"metadata") for number in range(members)],
    )


async def turns(until: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if until():
            return
        await asyncio.sleep(0)
    pytest.fail("it is not delivered")


def test_a_short_response_is_delivered_in_the_next_turn_of_the_loop_without_a_task() -> None:
    async def scenario() -> None:
        request, reply, done = parked(), PendingReply(), list[ParkedRequest]()
        request.wait(reply, done.append)
        tasks = asyncio.all_tasks()

        reply.complete(response(members=0))

        assert done == [], "the command that completes it is not over"
        assert asyncio.all_tasks() == tasks
        await asyncio.sleep(0)
        assert done == [request]
        assert request.result() is reply.response

    asyncio.run(scenario())


def test_a_response_with_elements_is_encoded_in_slices() -> None:
    async def scenario() -> None:
        request, reply, done = parked(), PendingReply(), list[ParkedRequest]()
        request.wait(reply, done.append)
        long = response(members=3)

        reply.complete(long)
        await turns(lambda: bool(done))

        encoded = request.result()
        assert isinstance(encoded, EncodedParts)
        assert b"".join(encoded.parts) == encode(long, VERSION)

    asyncio.run(scenario())


def test_a_reply_that_a_task_returns_is_waited_for_without_it() -> None:
    async def scenario() -> None:
        request, reply, done = parked(), PendingReply(), list[ParkedRequest]()
        tasks = asyncio.all_tasks()

        async def decoded_in_slices() -> PendingReply:
            return reply

        request.wait(decoded_in_slices(), done.append)
        assert asyncio.all_tasks() > tasks
        await turns(lambda: asyncio.all_tasks() == tasks)
        await asyncio.sleep(0)
        assert done == []

        reply.complete(response(members=0))
        await asyncio.sleep(0)

        assert done == [request]
        assert request.result() is reply.response

    asyncio.run(scenario())


def test_a_short_response_of_a_task_is_not_encoded_in_slices() -> None:
    async def scenario() -> None:
        request, done, short = parked(), list[ParkedRequest](), response(members=0)

        async def answer() -> JoinGroupResponse:
            return short

        request.wait(answer(), done.append)
        await turns(lambda: bool(done))
        assert request.result() is short

    asyncio.run(scenario())


@pytest.mark.parametrize("is_late", [False, True])
def test_an_action_gets_the_response_whether_it_comes_before_or_after_it(is_late: bool) -> None:
    reply, got = PendingReply(), list[str]()
    if is_late:
        reply.complete("response")
    reply.on_complete(got.append)
    reply.complete("response")
    assert got == ["response"]


@pytest.mark.parametrize("members", [0, 1])
def test_a_request_that_was_cancelled_delivers_nothing(members: int) -> None:
    async def scenario() -> None:
        request, reply, done = parked(), PendingReply(), list[ParkedRequest]()
        request.wait(reply, done.append)

        request.cancel()
        reply.complete(response(members))
        for _ in range(10):
            await asyncio.sleep(0)

        assert done == []

    asyncio.run(scenario())


def test_the_first_response_counts() -> None:
    reply = PendingReply()
    reply.complete("first")
    reply.complete("second")
    assert asyncio.run(reply.wait()) == "first"
