"""One client's requests: order, what waits, what ends a connection, and that nothing is kept."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import struct
from typing import Any

import pytest

from holdfast.broker.api.replies import Disconnect
from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.router.ports import RoutedClient
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from holdfast.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from holdfast.wire.errors import WireError
from holdfast.wire.headers import encode_response_parts
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import (
    FORWARDED,
    LOCAL,
    FakeRequests,
    Gateway,
    Peer,
    answer_all,
    correlation_id_of,
    gateway,
    request,
    response,
    until,
)

PRODUCE = 0


def produce(correlation_id: int, acks: int, size: int = 100) -> bytes:
    return request(PRODUCE, correlation_id, struct.pack(">hh", -1, acks) + bytes(size), version=3)


# -- order -------------------------------------------------------------------------------------------------------------


def test_requests_to_kafka_are_pipelined(run: Run) -> None:
    async def kafka(peer: Peer) -> None:
        frames = [await peer.frame() for _ in range(50)]
        await peer.send(*(response(correlation_id_of(frame)) for frame in frames))

    async def main() -> None:
        async with gateway(kafka) as running:
            client = await running.connect()
            await client.send(*(request(FORWARDED, number) for number in range(50)))
            assert [(await client.reply())[0] for _ in range(50)] == list(range(50))

    run(main())


def test_an_answer_of_the_gateway_waits_for_kafkas_earlier_ones(run: Run) -> None:
    async def main() -> None:
        received = asyncio.Event()
        go_on = asyncio.Event()

        async def kafka(peer: Peer) -> None:
            first = await peer.frame()
            received.set()
            await go_on.wait()
            await peer.send(response(correlation_id_of(first)))
            await answer_all(peer)

        async with gateway(kafka) as running:
            client = await running.connect()
            await client.send(request(FORWARDED, 1), request(LOCAL, 2), request(FORWARDED, 3), request(LOCAL, 4))
            await received.wait()
            await asyncio.sleep(0.05)
            assert not running.requests.answered
            go_on.set()
            assert [(await client.reply())[0] for _ in range(4)] == [1, 2, 3, 4]

    run(main())


def test_requests_behind_a_parked_one_wait(run: Run) -> None:
    async def main() -> None:
        parked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        requests = FakeRequests()

        async def wait() -> bytes:
            return await parked

        requests.answer_with = lambda _frame, _client: wait()
        async with gateway(requests=requests) as running:
            client = await running.connect()
            await client.send(request(LOCAL, 1), request(FORWARDED, 2))
            await until(lambda: requests.answered == [1], "not asked")
            await asyncio.sleep(0.05)
            assert not running.kafka.peers
            parked.set_result(response(1))
            assert [(await client.reply())[0] for _ in range(2)] == [1, 2]

    run(main())


@pytest.mark.parametrize("seed", range(25))
def test_replies_come_in_the_order_of_requests(run: Run, seed: int) -> None:
    """A random mix, in random chunks, answered after random delays, against the plain list of what must come."""
    rng = random.Random(seed)
    kinds = [rng.choice(("forward", "local", "parked", "produce", "silent")) for _ in range(60)]
    sizes = [rng.choice((0, 1, 50, 3000, 100_000 if rng.random() < 0.2 else 10)) for _ in kinds]

    def frame(number: int) -> bytes:
        kind, size = kinds[number], sizes[number]
        if kind in ("produce", "silent"):
            return produce(number, 0 if kind == "silent" else 1, size)
        return request(FORWARDED if kind == "forward" else LOCAL, number, bytes(size))

    async def kafka(peer: Peer) -> None:
        owed: list[bytes] = []
        while True:
            got = await peer.frame()
            number = correlation_id_of(got)
            assert kinds[number] in ("forward", "produce", "silent")
            assert got == frame(number)[4:]
            if kinds[number] != "silent":
                owed.append(response(number, b"kafka" + bytes(rng.choice((0, 10, 50_000)))))
            await asyncio.sleep(rng.choice((0, 0, 0.001)))
            if owed:
                await peer.send(*owed)
                owed.clear()

    def answer(got: bytes, _client: RoutedClient) -> Any:
        number = correlation_id_of(got)
        assert got == frame(number)[4:]
        reply = response(number, b"local")

        async def later() -> bytes:
            await asyncio.sleep(rng.choice((0, 0.001)))
            return reply

        return later() if kinds[number] == "parked" else reply

    async def main() -> None:
        requests = FakeRequests()
        requests.answer_with = answer
        async with gateway(kafka, requests=requests) as running:
            client = await running.connect()
            stream = b"".join(frame(number) for number in range(len(kinds)))

            async def write() -> None:
                position = 0
                while position < len(stream):
                    size = rng.choice((1, 5, 13, 200, 5000, 70_000))
                    await client.send(stream[position : position + size])
                    position += size
                    await asyncio.sleep(rng.choice((0, 0, 0.001)))

            writing = asyncio.get_running_loop().create_task(write())
            for number, kind in enumerate(kinds):
                if kind != "silent":
                    answered, body = await client.reply()
                    expected = b"local" if kind in ("local", "parked") else b"kafka"
                    assert (answered, body[:5]) == (number, expected)
            await writing

    run(main())


def test_a_stream_cut_at_every_byte_is_answered_the_same(run: Run) -> None:
    stream = request(FORWARDED, 1) + produce(2, 0, 5) + request(LOCAL, 3) + produce(4, 1, 5) + request(LOCAL, 5)

    async def main() -> None:
        async with gateway(silent_aware) as running:
            for cut in range(1, len(stream)):
                client = await running.connect()
                await client.send(stream[:cut])
                await asyncio.sleep(0.001)
                await client.send(stream[cut:])
                assert [(await client.reply())[0] for _ in range(4)] == [1, 3, 4, 5]
                client.close()
            client = await running.connect()
            for byte in stream:
                await client.send(bytes((byte,)))
                await asyncio.sleep(0)
            assert [(await client.reply())[0] for _ in range(4)] == [1, 3, 4, 5]

    run(main())


async def silent_aware(peer: Peer) -> None:
    """Kafka as far as acks: does not answer a Produce with acks=0, in chunks of three bytes."""
    while True:
        frame = await peer.frame()
        if frame[:2] == b"\0\0" and struct.unpack_from(">h", frame, 16) == (0,):
            continue
        answer = response(correlation_id_of(frame), b"kafka")
        for start in range(0, len(answer), 3):
            await peer.send(answer[start : start + 3])


def test_thousands_of_pipelined_answers_let_other_clients_in_between(run: Run) -> None:
    async def main() -> None:
        async with gateway() as running:
            busy, other = await running.connect(), await running.connect()
            count = 20_000
            sending = asyncio.get_running_loop().create_task(
                busy.send(*(request(LOCAL, number) for number in range(count)))
            )
            await until(lambda: bool(running.requests.answered), "not asked")
            await other.send(request(LOCAL, -7))
            reading = [asyncio.get_running_loop().create_task(read_all(busy, count))]
            assert await other.reply() == (-7, b"local")
            position = running.requests.answered.index(-7)
            await asyncio.gather(sending, *reading)
            assert position < count

    run(main())


async def read_all(client: Peer, count: int) -> None:
    assert [(await client.reply())[0] for _ in range(count)] == list(range(count))


def test_more_outstanding_requests_than_the_limit_wait_and_are_answered(run: Run) -> None:
    async def main() -> None:
        async with gateway() as running:
            client = await running.connect()
            count = 5000
            sending = asyncio.get_running_loop().create_task(
                client.send(*(request(FORWARDED, number) for number in range(count)))
            )
            await read_all(client, count)
            await sending

    run(main())


# -- asking Kafka ------------------------------------------------------------------------------------------------------


def asks(requests: FakeRequests, *questions: tuple[Any, int]) -> list[Any]:
    """Local requests are answered after asking Kafka these questions; returns the list of answers."""
    found: list[Any] = []

    async def ask(frame: bytes, client: RoutedClient) -> bytes:
        for question, version in questions:
            found.append(await client.ask(question, version))
        return response(correlation_id_of(frame), b"asked")

    requests.answer_with = ask
    return found


def encoded(message: Any, version: int, correlation_id: int) -> bytes:
    parts: list[Any] = encode_response_parts(message, version, correlation_id)
    return b"".join(parts)


def test_the_gateway_asks_on_the_clients_own_connection(run: Run) -> None:
    async def kafka(peer: Peer) -> None:
        while True:
            frame = await peer.frame()
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == DescribeGroupsRequest.API.key:  # type: ignore[attr-defined]
                await peer.send(encoded(DescribeGroupsResponse(throttle_time_ms=3), version, correlation_id))
            else:
                await peer.send(response(correlation_id, b"kafka"))

    async def main() -> None:
        requests = FakeRequests()
        found = asks(requests, (DescribeGroupsRequest(["a"]), 5), (DescribeGroupsRequest(["b"]), 5))
        async with gateway(kafka, requests=requests) as running:
            client = await running.connect()
            await client.send(request(LOCAL, 1), request(FORWARDED, 2), request(LOCAL, 3))
            assert [await client.reply() for _ in range(3)] == [(1, b"asked"), (2, b"kafka"), (3, b"asked")]
            assert [one.throttle_time_ms for one in found] == [3] * 4
            assert len(running.kafka.peers) == 1

    run(main())


@pytest.mark.parametrize("is_transparent", [True, False])
def test_an_answer_to_the_gateway_has_the_addresses_for_the_client(run: Run, is_transparent: bool) -> None:
    async def kafka(peer: Peer) -> None:
        frame = await peer.frame()
        found = FindCoordinatorResponse(node_id=1, host="kafka", port=9092)
        await peer.send(encoded(found, 3, correlation_id_of(frame)))
        await peer.frame()

    async def main() -> None:
        requests = FakeRequests()
        found = asks(requests, (FindCoordinatorRequest("id", 1), 3))
        async with gateway(kafka, requests=requests, is_transparent=is_transparent) as running:
            client = await running.connect()
            await client.send(request(LOCAL, 1))
            assert await client.reply() == (1, b"asked")
            expected = ("kafka", 9092) if is_transparent else running.brokers.advertised(1)
            assert (found[0].host, found[0].port) == expected

    run(main())


@pytest.mark.parametrize("needs_kafka", [True, False])
def test_asking_a_kafka_that_cannot_be_reached_fails(run: Run, needs_kafka: bool) -> None:
    async def main() -> None:
        requests = FakeRequests()

        async def ask(frame: bytes, client: RoutedClient) -> bytes:
            try:
                await client.ask(DescribeGroupsRequest(["a"]), 5)
            except KafkaUnreachable:
                if needs_kafka:
                    raise
            return response(1)

        requests.answer_with = ask
        async with gateway(requests=requests) as running:
            running.kafka.stop_listening()
            client = await running.connect()
            await client.send(request(LOCAL, 1))
            if needs_kafka:
                await client.ended()
                await running.empty()
            else:
                assert await client.frame() == response(1)[4:], "an answer that does not need Kafka is sent"

    run(main())


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_producer_with_acks_0_may_disconnect_at_once(run: Run) -> None:
    async def main() -> None:
        got = bytearray()
        ends = asyncio.Event()

        async def kafka(peer: Peer) -> None:
            got.extend(await peer.ended())
            ends.set()

        async with gateway(kafka) as running:
            for size in (10, 100_000, 5_000_000):
                got.clear()
                ends.clear()
                client = await running.connect()
                sent = produce(1, 0, size) + produce(2, 0, size)
                await client.send(sent)
                client.close()
                await asyncio.wait_for(ends.wait(), 20)
                assert bytes(got) == sent
            await running.empty()

    run(main())


def test_requests_behind_a_slow_response_are_not_lost_when_the_client_disconnects(run: Run) -> None:
    async def main() -> None:
        got: list[int] = []
        go_on = asyncio.Event()

        async def kafka(peer: Peer) -> None:
            first = await peer.frame()
            await go_on.wait()
            await peer.send(response(correlation_id_of(first)))
            while True:
                got.append(correlation_id_of(await peer.frame()))

        async with gateway(kafka) as running:
            client = await running.connect()
            await client.send(request(FORWARDED, 1), request(LOCAL, 2), produce(3, 0))
            await until(lambda: bool(running.kafka.peers), "not connected")
            client.close()
            await asyncio.sleep(0.05)
            go_on.set()
            await running.empty()
            assert (running.requests.answered, got) == ([2], [3])

    run(main())


def test_a_client_that_only_ends_its_requests_still_gets_responses(run: Run) -> None:
    async def main() -> None:
        async with gateway() as running:
            client = await running.connect()
            await client.send(request(FORWARDED, 1), request(LOCAL, 2), request(FORWARDED, 3))
            client.writer.write_eof()
            assert [(await client.reply())[0] for _ in range(3)] == [1, 2, 3]
            assert await client.ended() == b""
            await running.empty()

    run(main())


def test_a_parked_answer_is_cancelled_when_its_client_disconnects(run: Run) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()
        requests = FakeRequests()

        async def park() -> bytes:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return b""

        requests.answer_with = lambda _frame, _client: park()
        async with gateway(requests=requests) as running:
            client = await running.connect()
            await client.send(request(LOCAL, 1))
            await until(lambda: bool(requests.answered), "not asked")
            client.close()
            await asyncio.wait_for(cancelled.wait(), 10)
            await running.empty()
            assert requests.closed_clients == requests.clients

    run(main())


def test_kafka_that_never_closes_is_left_after_a_while(run: Run) -> None:
    async def main() -> None:
        async def kafka(peer: Peer) -> None:
            await asyncio.sleep(60)

        async with gateway(kafka, linger_ms=100) as running:
            client = await running.connect()
            await client.send(request(FORWARDED, 1))
            await until(lambda: bool(running.kafka.peers), "not connected")
            client.close()
            await running.empty()
            assert len(running.requests.closed_clients) == 1

    run(main())


def test_an_idle_connection_that_kafka_closes_is_opened_again_for_the_next_request(run: Run) -> None:
    async def once(peer: Peer) -> None:
        frame = await peer.frame()
        await peer.send(response(correlation_id_of(frame)))

    async def main() -> None:
        async with gateway(once) as running:
            client = await running.connect()
            for number in range(5):
                await client.send(request(FORWARDED, number))
                assert (await client.reply())[0] == number
                await asyncio.sleep(0.02)
            assert len(running.kafka.peers) == 5

    run(main())


def test_the_end_that_kafka_makes_after_acks_0_reaches_the_producer(run: Run) -> None:
    """It is how Kafka reports an error there."""

    async def once(peer: Peer) -> None:
        await peer.frame()

    async def main() -> None:
        async with gateway(once) as running:
            client = await running.connect()
            await client.send(produce(1, 0))
            assert await client.ended() == b""

    run(main())


def test_the_same_end_reaches_a_producer_that_waits_for_the_gateway(run: Run) -> None:
    async def once(peer: Peer) -> None:
        await peer.frame()

    async def main() -> None:
        requests = FakeRequests()

        async def park() -> bytes:
            await asyncio.sleep(60)
            return b""

        requests.answer_with = lambda _frame, _client: park()
        async with gateway(once, requests=requests, linger_ms=200) as running:
            client = await running.connect()
            await client.send(produce(1, 0), request(LOCAL, 2))
            assert await client.ended() == b""
            await running.empty()

    run(main())


def test_a_parked_answer_survives_the_end_of_kafkas_connection(run: Run) -> None:
    async def once(peer: Peer) -> None:
        frame = await peer.frame()
        await peer.send(response(correlation_id_of(frame)))
        await asyncio.sleep(0.05)
        peer.writer.transport.abort()

    async def main() -> None:
        requests = FakeRequests()

        async def park() -> bytes:
            await asyncio.sleep(0.2)
            return response(2, b"local")

        requests.answer_with = lambda _frame, _client: park()
        async with gateway(once, requests=requests) as running:
            client = await running.connect()
            await client.send(request(FORWARDED, 1), request(LOCAL, 2), request(FORWARDED, 3))
            assert [(await client.reply())[0] for _ in range(3)] == [1, 2, 3]
            assert len(running.kafka.peers) == 2

    run(main())


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 7, 100 * 1024 * 1024 + 1, (1 << 31) - 1])
def test_a_hostile_length_ends_the_connection(run: Run, length: int) -> None:
    async def main() -> None:
        async with gateway() as running:
            client = await running.connect()
            await client.send(request(LOCAL, 1), struct.pack(">ihhi", length, FORWARDED, 0, 1))
            assert await client.ended() == response(1, b"local")
            await running.empty()

    run(main())


@pytest.mark.parametrize(
    ("key", "version"), [(PRODUCE, 14), (PRODUCE, -1), (3, 14), (1, 16), (10, 7), (60, 3), (17, 2), (36, 3)]
)
def test_a_version_that_cannot_be_read_ends_the_connection(run: Run, key: int, version: int) -> None:
    async def main() -> None:
        async with gateway(is_transparent=False) as running:
            client = await running.connect()
            await client.send(request(key, 1, version=version))
            assert await client.ended() == b""
            assert not running.kafka.peers

    run(main())


@pytest.mark.parametrize(
    "error", [WireError("cut short"), Disconnect("no such group"), KafkaUnreachable("gone"), ValueError()]
)
@pytest.mark.parametrize("is_late", [False, True])
def test_an_answer_that_fails_ends_this_connection_only(
    run: Run, caplog: pytest.LogCaptureFixture, error: Exception, is_late: bool
) -> None:
    requests = FakeRequests()

    async def later() -> bytes:
        raise error

    def fail(_frame: bytes, _client: RoutedClient) -> Any:
        if is_late:
            return later()
        raise error

    async def main() -> None:
        async with gateway(requests=requests) as running:
            client, other = await running.connect(), await running.connect()
            requests.answer_with = fail
            await client.send(request(LOCAL, 1))
            assert await client.ended() == b""
            requests.answer_with = lambda _frame, _client: response(2)
            await other.send(request(LOCAL, 2))
            assert (await other.reply())[0] == 2

    with caplog.at_level(logging.WARNING):
        run(main())
    assert len(caplog.records) == 1
    assert bool(caplog.records[0].exc_info) == isinstance(error, ValueError)


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\0\0\3abc",
        response(7),
        struct.pack(">i", -1),
        response(1) + response(2),
        b"\0\0\0\0",
    ],
)
def test_a_response_that_cannot_be_right_ends_the_connection(run: Run, answer: bytes) -> None:
    async def kafka(peer: Peer) -> None:
        await peer.frame()
        await peer.send(answer)
        await peer.frame()

    async def main() -> None:
        async with gateway(kafka) as running:
            client = await running.connect()
            await client.send(request(FORWARDED, 1))
            await client.ended()
            await running.empty()

    run(main())


def test_kafka_may_die_at_every_byte_of_its_responses(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    stream = response(1, b"one") + response(3, b"three")

    async def main() -> None:
        async with gateway() as running:
            for cut in range(len(stream) + 1):
                running.kafka.serve = dying(cut)
                client = await running.connect()
                await client.send(request(FORWARDED, 1), request(LOCAL, 2), request(FORWARDED, 3))
                got = await client.ended() if cut < len(stream) else await read_replies(client, 3)
                whole = response(1, b"one") + response(2, b"local") + response(3, b"three")
                assert whole.startswith(got)
                client.close()
            await running.empty()

    def dying(cut: int) -> Any:
        async def kafka(peer: Peer) -> None:
            await peer.frame()
            await peer.send(stream[: min(cut, 11)])
            if cut < 11:
                raise ConnectionError
            await peer.frame()
            await peer.send(stream[11:cut])

        return kafka

    with caplog.at_level(logging.WARNING):
        run(main())
    assert not [record for record in caplog.records if record.exc_info]


async def read_replies(client: Peer, count: int) -> bytes:
    return b"".join([response(*await client.reply()) for _ in range(count)])


@pytest.mark.parametrize("cut", range(0, 130, 7))
def test_kafka_may_die_at_any_byte_of_a_request(run: Run, cut: int) -> None:
    async def kafka(peer: Peer) -> None:
        await peer.reader.readexactly(cut)
        peer.writer.transport.abort()

    async def main() -> None:
        async with gateway(kafka) as running:
            client = await running.connect()
            await client.send(request(FORWARDED, 1, bytes(100)), request(FORWARDED, 2), request(LOCAL, 3))
            assert await client.ended() == b""
            await running.empty()
            assert len(running.requests.closed_clients) == 1

    run(main())


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_client_may_die_at_any_byte(run: Run, cut: int, is_reset: bool) -> None:
    stream = request(FORWARDED, 1) + request(LOCAL, 2)

    async def main() -> None:
        async with gateway(linger_ms=2000) as running:
            client = await running.connect()
            await client.send(stream[:cut])
            await asyncio.sleep(0.002)
            if is_reset:
                reset(client)
            client.writer.transport.abort()
            await running.empty()
            assert len(running.requests.closed_clients) == 1

    run(main())


def reset(peer: Peer) -> None:
    """Its end will not be followed by an orderly end of the stream."""
    underlying = peer.writer.get_extra_info("socket")
    underlying.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("is_reset", [False, True])
def test_what_arrived_before_the_client_died_goes_to_kafka(run: Run, is_reset: bool) -> None:
    async def main() -> None:
        got = bytearray()

        async def kafka(peer: Peer) -> None:
            got.extend(await peer.ended())

        async with gateway(kafka) as running:
            for number in range(20):
                got.clear()
                client = await running.connect()
                sent = produce(number, 0, 3_000_000)
                client.writer.write(sent)
                client.writer.transport.set_write_buffer_limits(high=0)
                await client.writer.drain()
                if is_reset:
                    reset(client)
                client.writer.transport.abort()
                await running.empty()
                assert sent.startswith(bytes(got))
                assert is_reset or len(got) == len(sent)

    run(main())


def test_many_clients_that_lose_kafka_are_one_log_line(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with gateway() as running:
            running.kafka.stop_listening()
            clients = [await running.connect() for _ in range(20)]
            for client in clients:
                await client.send(request(FORWARDED, 1))
            for client in clients:
                assert await client.ended() == b""

    with caplog.at_level(logging.WARNING):
        run(main())
    assert len(caplog.records) == 1
    assert "cannot reach broker 1" in caplog.text


def test_clients_of_kafka_that_does_not_answer_the_call_are_disconnected_in_time(run: Run) -> None:
    async def main() -> None:
        async with gateway(connect_timeout_ms=100) as running:
            running.brokers.change({1: running.brokers.addresses[1]._replace(host="192.0.2.1")})
            client = await running.connect()
            await client.send(request(FORWARDED, 1))
            assert await client.ended() == b""

    run(main())


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [19, 20, 37])
def test_changes_of_topics_are_reported_after_kafkas_response(run: Run, key: int) -> None:
    async def main() -> None:
        reported: list[int] = []
        gateways: list[Gateway] = []

        async def kafka(peer: Peer) -> None:
            frame = await peer.frame()
            reported.append(gateways[0].topics_changed)
            await peer.send(response(correlation_id_of(frame), bytes(50))[:20])
            await asyncio.sleep(0.02)
            reported.append(gateways[0].topics_changed)
            await peer.send(response(correlation_id_of(frame), bytes(50))[20:])
            await answer_all(peer)

        async with gateway(kafka) as running:
            gateways.append(running)
            client = await running.connect()
            await client.send(request(key, 1))
            assert (await client.reply())[0] == 1
            await client.send(request(FORWARDED, 2))
            assert (await client.reply())[0] == 2
            assert (reported, running.topics_changed) == ([0, 0], 1)

    run(main())
