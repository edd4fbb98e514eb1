"""Whatever a server sends, the client ends with an answer or with one of its own exceptions, in time."""

import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.connection import Connection
from holdfast.client.errors import HoldfastError
from holdfast.client.runtime import SYSTEM
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from holdfast.wire.headers import encode_response_parts
from tests.unit.client.scripted import Peer, Script, ScriptedServer

PATIENCE_S = 20.0
SECOND_REQUEST = 2
"""The correlation id of what is asked after ApiVersions."""


def outcome(script: Script) -> object:
    """What comes of connecting and asking: an answer, or the exception."""
    with ScriptedServer(script) as server, Connection(*server.address, runtime=SYSTEM) as connection:
        deadline = time.monotonic() + PATIENCE_S
        try:
            connection.connect(deadline)
            return connection.ask(JoinGroupRequest("g", protocol_type="consumer"), deadline)
        except HoldfastError as failure:
            assert connection.closed
            assert time.monotonic() < deadline
            return failure


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def whole_answer() -> bytes:
    members = [JoinGroupResponseMember(f"m{number}", metadata=bytes(20)) for number in range(3)]
    response = JoinGroupResponse(generation_id=1, protocol_name="range", leader="m0", member_id="m0", members=members)
    parts: list[bytes] = encode_response_parts(response, 9, SECOND_REQUEST)  # type: ignore[assignment]  # no records
    return b"".join(parts)


@settings(max_examples=60)
@given(sent=st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(framed)))
def test_random_bytes_instead_of_api_versions(sent: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.socket.sendall(sent)

    assert isinstance(outcome(script), HoldfastError)


@settings(max_examples=60)
@given(sent=st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(framed)))
def test_random_bytes_instead_of_an_answer(sent: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.request()
        peer.socket.sendall(sent)

    assert isinstance(outcome(script), HoldfastError | JoinGroupResponse)


@settings(max_examples=100)
@given(position=st.integers(0, len(whole_answer()) - 1), value=st.integers(0, 255))
def test_one_wrong_byte_in_an_answer(position: int, value: int) -> None:
    spoilt = bytearray(whole_answer())
    spoilt[position] = value

    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.request()
        peer.socket.sendall(spoilt)

    assert isinstance(outcome(script), HoldfastError | JoinGroupResponse)


@pytest.mark.parametrize("kept", range(0, len(whole_answer()), 7))
def test_an_answer_that_is_cut_off_is_never_taken_for_a_whole_one(kept: int) -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.request()
        peer.socket.sendall(whole_answer()[:kept])

    assert isinstance(outcome(script), HoldfastError)


def test_and_the_whole_answer_is_taken() -> None:
    def script(peer: Peer) -> None:
        peer.answer_api_versions()
        peer.request()
        peer.socket.sendall(whole_answer())
        peer.expect_end()

    assert isinstance(outcome(script), JoinGroupResponse)
