"""One connection, in front of servers that behave and servers that do not."""

import gc
import os
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.connection import Connection
from holdfast.client.errors import ConnectionFailed, ConnectionLost, RequestTimedOut, UnsupportedVersion
from holdfast.client.runtime import SYSTEM
from holdfast.wire.apis.api_versions import ApiVersion, ApiVersionsResponse
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.headers import encode_response_parts
from tests.support.eventually import eventually
from tests.unit.client.scripted import Peer, Script, ScriptedServer, silent, unused_address
from tests.unit.client.threads import in_another_thread, is_waiting

SOON_S = 0.3
PATIENCE_S = 20.0


def soon() -> float:
    return time.monotonic() + SOON_S


def patiently() -> float:
    return time.monotonic() + PATIENCE_S


def connected(server: ScriptedServer, **settings: object) -> Connection:
    connection = Connection(*server.address, **settings, runtime=SYSTEM)  # type: ignore[arg-type]  # each test gives what fits
    connection.connect(patiently())
    return connection


def heartbeats(peer: Peer) -> None:
    """Answers heartbeats with their generation as the throttle time, so that each answer is known by its question."""
    peer.answer_api_versions()
    while True:
        request = peer.request()
        peer.answer(request, HeartbeatResponse(throttle_time_ms=request.message.generation_id))


def after_versions(sent: bytes) -> Script:
    """Answers the first request after ApiVersions with these bytes, whatever they are, and waits."""

    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.request()
        peer.socket.sendall(sent)
        peer.expect_end()

    return script


# -- versions ----------------------------------------------------------------------------------------------------------


def test_the_highest_version_that_both_speak_is_spoken() -> None:
    seen = []

    def script(peer: Peer) -> None:
        seen.append(peer.answer_api_versions({HEARTBEAT.key: (1, 3)}))
        seen.append(peer.request())
        peer.answer(seen[-1], HeartbeatResponse())

    with ScriptedServer(script) as server, connected(server, client_id="me") as connection:
        connection.ask(HeartbeatRequest("g", 1, "m"))
    hello, heartbeat = seen
    assert (hello.version, hello.message.client_software_name, hello.client_id) == (4, "holdfast", "me")
    assert heartbeat.version == 3


def test_version_of_is_bounded_by_the_caller_too() -> None:
    with ScriptedServer(heartbeats) as server, connected(server) as connection:
        assert connection.version_of(HEARTBEAT) == 4
        assert connection.version_of(HEARTBEAT, highest=2) == 2
        assert connection.supports(HEARTBEAT, 4)
        assert not connection.supports(HEARTBEAT, 5)


@pytest.mark.parametrize("offered", [(5, 9), None], ids=["too new", "absent"])
def test_without_a_common_version_api_and_versions_are_named(offered: tuple[int, int] | None) -> None:
    def script(peer: Peer) -> None:
        request = peer.request()
        keys = [] if offered is None else [ApiVersion(HEARTBEAT.key, *offered)]
        peer.answer(request, ApiVersionsResponse(api_keys=keys))
        peer.expect_end()

    with ScriptedServer(script) as server, connected(server) as connection:
        with pytest.raises(UnsupportedVersion) as raised:
            connection.ask(HeartbeatRequest("g", 1, "m"))
        found = "has versions 5 to 9" if offered else "does not have it"
        assert "Heartbeat" in str(raised.value)
        assert "from 0 to 4" in str(raised.value)
        assert found in str(raised.value)
        assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION
        assert not connection.closed, "nothing was sent: the connection is as good as before"


def test_a_field_that_the_common_version_lacks_is_refused_before_anything_is_sent() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions({HEARTBEAT.key: (0, 2)})
        assert peer.request().message.group_instance_id is None
        peer.expect_end()

    with ScriptedServer(script) as server, connected(server) as connection:
        with pytest.raises(UnsupportedVersion, match="Heartbeat v2"):
            connection.send(HeartbeatRequest("g", 1, "m", group_instance_id="i"))
        connection.send(HeartbeatRequest("g", 1, "m"))


@pytest.mark.parametrize("tells_range", [True, False], ids=["with its range", "without"])
def test_a_broker_that_does_not_know_our_api_versions_is_asked_again_in_its_own(tells_range: bool) -> None:
    asked = []

    def script(peer: Peer) -> None:
        refused = peer.request()
        # As Kafka refuses it: the body of v0, whatever was asked (KIP-511).
        body = struct.pack(">ih", refused.correlation_id, ErrorCode.UNSUPPORTED_VERSION)
        body += struct.pack(">ihhh", 1, 18, 0, 2) if tells_range else struct.pack(">i", 0)
        peer.socket.sendall(struct.pack(">i", len(body)) + body)
        asked.extend([refused.version, peer.answer_api_versions().version])

    with ScriptedServer(script) as server, connected(server) as connection:
        assert connection.supports(HEARTBEAT)
    assert asked == [4, 2 if tells_range else 0]


# -- questions and answers ---------------------------------------------------------------------------------------------


def test_answers_are_matched_by_correlation_id_whatever_their_order() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        for request in reversed([peer.request() for _ in range(3)]):
            peer.answer(request, HeartbeatResponse(throttle_time_ms=request.message.generation_id))
        peer.expect_end()

    with ScriptedServer(script) as server, connected(server) as connection:
        first, second = (connection.send(HeartbeatRequest("g", number, "m")) for number in (1, 2))
        third = connection.ask(HeartbeatRequest("g", 3, "m"), patiently())
        received = [connection.receive(patiently()), connection.receive(patiently())]
    assert third.throttle_time_ms == 3
    assert received == [(second, HeartbeatResponse(2)), (first, HeartbeatResponse(1))]
    assert connection.in_flight == 0


def test_what_comes_during_an_ask_is_kept_for_receive_and_is_pending() -> None:
    with ScriptedServer(heartbeats) as server, connected(server) as connection:
        sent = connection.send(HeartbeatRequest("g", 7, "m"))
        assert connection.ask(HeartbeatRequest("g", 8, "m")).throttle_time_ms == 8
        assert connection.pending
        assert connection.receive(0.0) == (sent, HeartbeatResponse(7))
        assert not connection.pending


def test_a_parked_join_is_awaited_in_slices() -> None:
    complete = threading.Event()

    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        request = peer.request()
        assert complete.wait(PATIENCE_S)
        peer.answer(request, JoinGroupResponse(generation_id=5, protocol_name="range"))
        peer.expect_end()

    with ScriptedServer(script) as server, connected(server) as connection:
        sent = connection.send(JoinGroupRequest("g", 10_000, member_id="m", protocol_type="consumer"))
        assert connection.receive(time.monotonic() + 0.05) is None
        assert connection.receive(0.0) is None
        complete.set()
        received = connection.receive(patiently())
    assert received is not None
    assert (received[0], received[1].generation_id) == (sent, 5)


def test_an_answer_that_arrives_byte_by_byte_is_read_across_slices() -> None:
    step = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        request = peer.request()
        body = struct.pack(">ibihb", request.correlation_id, 0, 0, 27, 0)
        for byte in struct.pack(">i", len(body)) + body:
            assert step.acquire(timeout=PATIENCE_S)
            peer.socket.sendall(bytes([byte]))
        peer.expect_end()

    with ScriptedServer(script) as server, connected(server) as connection:
        connection.send(HeartbeatRequest("g", 1, "m"), 4)
        slices = 0
        while (received := connection.receive(time.monotonic() + 0.01)) is None:
            assert not connection.pending
            slices += 1
            assert slices < 2000
            step.release()
        assert received[1].error_code == 27
        assert slices >= 16


def test_a_large_answer_is_read_whole() -> None:
    member = JoinGroupResponseMember("m", metadata=bytes(3_000_000))

    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.answer(peer.request(), JoinGroupResponse(members=[member]))
        peer.expect_end()

    with ScriptedServer(script) as server, connected(server) as connection:
        answer = connection.ask(JoinGroupRequest("g", protocol_type="consumer"), patiently())
    assert answer.members == [member]


# -- ends --------------------------------------------------------------------------------------------------------------


def test_without_an_answer_in_time_the_request_is_named_and_the_connection_given_up() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        silent(peer)

    with ScriptedServer(script) as server, connected(server) as connection:
        with pytest.raises(RequestTimedOut, match=rf"{server.address}: no answer to Heartbeat within 0\.\d s"):
            connection.ask(HeartbeatRequest("g", 1, "m"), soon())
        assert connection.closed
        with pytest.raises(ConnectionLost, match="closed by this client"):
            connection.send(HeartbeatRequest("g", 1, "m"))


def test_a_server_that_takes_no_bytes_is_given_up_too() -> None:
    released = threading.Event()

    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        released.wait(PATIENCE_S)

    with ScriptedServer(script) as server, connected(server, request_timeout_s=SOON_S) as connection:
        with pytest.raises(RequestTimedOut, match="takes no more bytes"):
            # More than the buffers of both sockets hold.
            connection.send(JoinGroupRequest("g", protocols=[JoinGroupRequestProtocol("p", bytes(30_000_000))]))
        assert connection.closed
        released.set()


def test_a_connection_closed_instead_of_an_answer_names_the_request() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.answer(peer.request(), HeartbeatResponse())
        peer.request()

    with ScriptedServer(script) as server, connected(server) as connection:
        connection.ask(HeartbeatRequest("g", 1, "m"))
        with pytest.raises(ConnectionLost) as raised:
            connection.ask(HeartbeatRequest("g", 1, "m"))
        assert str(raised.value) == f"{server.address}: closed by the broker before it answered Heartbeat"
        assert raised.value.retriable
        assert connection.closed


def test_a_broker_that_closes_at_the_first_request_may_want_sasl() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.request()

    with (
        ScriptedServer(script) as server,
        connected(server) as connection,
        pytest.raises(ConnectionLost, match=r"wants SASL .* see security.protocol"),
    ):
        connection.ask(HeartbeatRequest("g", 1, "m"))


def test_closed_in_the_middle_of_an_answer() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.request()
        peer.socket.sendall(struct.pack(">ii", 100, 2))

    with (
        ScriptedServer(script) as server,
        connected(server) as connection,
        pytest.raises(ConnectionLost, match="before it answered Heartbeat"),
    ):
        connection.ask(HeartbeatRequest("g", 1, "m"))


def test_a_reset_is_a_lost_connection() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.request()
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with (
        ScriptedServer(script) as server,
        connected(server) as connection,
        pytest.raises(ConnectionLost, match="reset"),
    ):
        connection.ask(HeartbeatRequest("g", 1, "m"))


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            r"a length of 1213486160 bytes.*receive.message.max.bytes is 100000000.*HTTP",
        ),
        (struct.pack(">i", -1), r"a length of -1 bytes"),
        (struct.pack(">i", 3) + b"abc", r"a length of 3 bytes"),
        (struct.pack(">i", 0x7FFFFFFF), r"a length of 2147483647 bytes"),
        (b"\x15\x03\x03\x00\x02\x02\x50", r"TLS, but security.protocol is PLAINTEXT: set it to SSL or SASL_SSL"),
        (struct.pack(">ii", 4, 4711), r"correlation id 4711, which nobody asked"),
        (struct.pack(">iib", 5, 2, 0), r"an answer that is not Heartbeat v4"),
        (struct.pack(">ii", 4, 2), r"malformed header of a Heartbeat v4 response"),
    ],
    ids=["http", "negative", "too short", "huge", "tls", "unasked", "truncated", "without header"],
)
def test_what_is_not_kafka_ends_the_connection_and_says_what_it_was(sent: bytes, said: str) -> None:
    with ScriptedServer(after_versions(sent)) as server, connected(server) as connection:
        with pytest.raises(ConnectionLost, match=said) as raised:
            connection.ask(HeartbeatRequest("g", 1, "m"), patiently(), 4)
        assert str(raised.value).startswith(f"{server.address}: ")
        assert connection.closed


def test_a_length_prefix_costs_no_memory_until_the_bytes_arrive() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.request()
        peer.socket.sendall(struct.pack(">ii", 99_999_999, 2))
        peer.expect_end()

    with ScriptedServer(script) as server, connected(server) as connection:
        before = resident_mib()
        connection.send(HeartbeatRequest("g", 1, "m"))
        assert connection.receive(soon()) is None
        assert resident_mib() - before < 20


# -- coming up ---------------------------------------------------------------------------------------------------------


def test_a_refused_connection_names_the_address() -> None:
    address = unused_address()
    with pytest.raises(ConnectionFailed, match=f"{address}: cannot connect: Connection refused"):
        Connection(*address, runtime=SYSTEM).connect(patiently())


def test_a_name_that_does_not_exist_is_said_to_be_that() -> None:
    with pytest.raises(ConnectionFailed, match=r"no.such.host.invalid:9092: cannot look the name up"):
        Connection("no.such.host.invalid", 9092, runtime=SYSTEM).connect(patiently())


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = unused_address()
    with ScriptedServer(heartbeats) as server:
        resolved = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", tuple(address)) for address in (dead, server.address)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: resolved)
        with Connection("broker.example", 9092, runtime=SYSTEM) as connection:
            connection.connect(patiently())
            assert connection.ask(HeartbeatRequest("g", 1, "m")).throttle_time_ms == 1
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: resolved[:1] * 2)
        with pytest.raises(ConnectionFailed, match=r"127.0.0.1: Connection refused, 127.0.0.1: Connection refused"):
            Connection("broker.example", 9092, runtime=SYSTEM).connect(patiently())


def test_an_address_that_swallows_packets_does_not_eat_the_time_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as full, ScriptedServer(heartbeats) as server:
        # A listener whose queue is full drops what comes, as a firewall does.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        crowd = [socket.socket() for _ in range(3)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        addresses = (full.getsockname(), tuple(server.address))
        resolved = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: resolved)
        with Connection("broker.example", 9092, runtime=SYSTEM) as connection:
            began = time.monotonic()
            connection.connect(began + 2)
            assert time.monotonic() - began >= 0.9, "the first address was not tried"
        for one in crowd:
            one.close()


def test_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    with ScriptedServer(heartbeats, family=socket.AF_INET6) as server, connected(server) as connection:
        assert connection.ask(HeartbeatRequest("g", 1, "m")).throttle_time_ms == 1
        assert str(connection.address) == f"[::1]:{server.address.port}"


def test_a_server_that_never_says_anything_is_given_up_at_the_deadline() -> None:
    with ScriptedServer(silent) as server:
        began = time.monotonic()
        with pytest.raises(ConnectionFailed) as raised:
            Connection(*server.address, runtime=SYSTEM).connect(soon())
        assert SOON_S * 0.9 <= time.monotonic() - began < SOON_S + 5
        assert f"{server.address}: no answer to ApiVersions within 0." in str(raised.value)
        assert "is this a Kafka listener for PLAINTEXT?" in str(raised.value)


def test_an_error_in_api_versions_is_named() -> None:
    def script(peer: Peer) -> None:
        peer.answer(peer.request(), ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST))
        peer.expect_end()

    said = "ApiVersions is answered with INVALID_REQUEST"
    with ScriptedServer(script) as server, pytest.raises(ConnectionFailed, match=said):
        Connection(*server.address, runtime=SYSTEM).connect(patiently())


# -- other threads -----------------------------------------------------------------------------------------------------


def test_wake_ends_a_receive_at_once_and_the_connection_stays_open() -> None:
    with ScriptedServer(heartbeats) as server, connected(server) as connection:
        thread = in_another_thread(connection.wake, lambda: is_waiting(connection))
        began = time.monotonic()
        assert connection.receive(patiently()) is None
        assert time.monotonic() - began < PATIENCE_S / 2
        thread.join()
        assert connection.ask(HeartbeatRequest("g", 4, "m")).throttle_time_ms == 4


def test_wake_before_a_receive_ends_that_receive_and_no_other() -> None:
    with ScriptedServer(heartbeats) as server, connected(server) as connection:
        connection.wake()
        assert connection.ask(HeartbeatRequest("g", 4, "m")).throttle_time_ms == 4, "wake does not end an ask"
        began = time.monotonic()
        assert connection.receive(patiently()) is None
        assert time.monotonic() - began < PATIENCE_S / 2
        began = time.monotonic()
        assert connection.receive(soon()) is None
        assert time.monotonic() - began >= SOON_S * 0.9, "the call was taken by the receive before"


@pytest.mark.parametrize("operation", ["receive", "ask", "connect"])
def test_close_by_another_thread_ends_what_waits_at_once(operation: str) -> None:
    def script(peer: Peer) -> None:
        if operation != "connect":
            peer.answer_api_versions()
        silent(peer)

    with ScriptedServer(script) as server:
        connection = Connection(*server.address, runtime=SYSTEM)
        if operation != "connect":
            connection.connect(patiently())
        thread = in_another_thread(connection.close, lambda: is_waiting(connection))
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match="closed by this client") as raised:
            match operation:
                case "receive":
                    connection.receive(patiently())
                case "ask":
                    connection.ask(HeartbeatRequest("g", 1, "m"), patiently())
                case _:
                    connection.connect(patiently())
        assert time.monotonic() - began < PATIENCE_S / 2
        assert not raised.value.retriable
        thread.join()
        assert connection.closed
        assert connection.fileno() == -1


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_connections_leave_no_descriptor_behind_however_they_end() -> None:
    dead = unused_address()
    with ScriptedServer(after_versions(b"garbage!")) as server:
        gc.collect()
        before = open_descriptors()
        for _ in range(20):
            connection = connected(server)
            with pytest.raises(ConnectionLost):
                connection.ask(HeartbeatRequest("g", 1, "m"))
            connected(server).close()
            with pytest.raises(ConnectionFailed):
                Connection(*dead, runtime=SYSTEM).connect(patiently())
        del connection
        # What is left belongs to the server's side of connections that its threads are still closing.
        eventually(lambda: open_descriptors() <= before, f"as few descriptors as before, {before}")


# -- large responses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [70_000, 300_000, 5_000_000])
def test_a_large_response_is_received_whole_however_it_is_cut(size: int) -> None:
    """And what is behind it belongs to the next response."""
    proceed = threading.Semaphore(0)
    content = bytes(range(256)) * (size // 256)

    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        large, small = peer.request(), peer.request()
        member = JoinGroupResponseMember("m", None, content)
        parts: list[Any] = [
            part
            for of, response in ((large, JoinGroupResponse(members=[member])), (small, HeartbeatResponse(7)))
            for part in encode_response_parts(response, of.version, of.correlation_id)
        ]
        frame = b"".join(parts)
        for piece in (frame[:2], frame[2:50_000], frame[50_000:-30], frame[-30:]):
            assert proceed.acquire(timeout=PATIENCE_S)
            peer.socket.sendall(piece)
        peer.expect_end()

    with ScriptedServer(script) as server, connected(server) as connection:
        asked = connection.send(JoinGroupRequest("g", protocols=[JoinGroupRequestProtocol("range", b"")]))
        behind = connection.send(HeartbeatRequest("g", 1, "m"))
        for _ in range(3):
            proceed.release()
            assert connection.receive(time.monotonic() + 0.05) is None
        proceed.release()
        received = connection.receive(patiently())
        after = connection.receive(patiently())

    assert received is not None and after is not None
    assert (received[0], received[1].members[0].metadata) == (asked, content)
    assert (after[0], after[1].throttle_time_ms) == (behind, 7)


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
