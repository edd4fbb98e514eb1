"""Headers that are kept: a request is served as if its header had been read in full."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.api.registry import Handler
from holdfast.broker.api.replies import NO_REPLY, Disconnect, NoReply
from holdfast.broker.api.request import RequestContext
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.config.listeners import Listener
from holdfast.broker.config.security import ListenerSecurity
from holdfast.broker.metrics import NO_METRICS
from holdfast.broker.network.bound_listener import BoundListener
from holdfast.broker.network.connection import Connection
from holdfast.broker.network.request_header import MAX_KEPT, MAX_KEPT_BYTES
from holdfast.broker.network.request_memory import RequestMemory
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from holdfast.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from holdfast.wire.errors import WireError
from holdfast.wire.headers import decode_request_header, encode_request
from holdfast.wire.message import decode

APIS = (HEARTBEAT, LIST_GROUPS)


class Served(NamedTuple):
    version: int
    client_id: str | None
    request: Any


class HeaderConnection(Connection):
    """A connection without a socket whose handlers note what they are given."""

    def __init__(self) -> None:
        self.served: list[Served] = []
        self.failures: list[Exception] = []
        handlers = {api.key: Handler(api, self._note, api.versions, api.versions) for api in APIS}
        unsupported = Handler(API_VERSIONS, self._note, (0, 0), (0, 0))
        env = SimpleNamespace(
            authorizer=None,
            clock=SimpleNamespace(now=lambda: 0.0),
            config=SimpleNamespace(current=BrokerConfig.of({})),
            handlers=handlers,
            memory=RequestMemory(1 << 20),
            metrics=NO_METRICS,
            not_served=lambda key: Disconnect(f"unknown API key {key}"),
            scratch=memoryview(bytearray(16)),
            services=None,
            unsupported_api_versions=unsupported,
        )
        super().__init__(cast("Any", env), BoundListener(Listener("broker.test", 9092), ListenerSecurity()))

    def _note(self, _services: Any, request: Any, context: RequestContext) -> NoReply:
        self.served.append(Served(context.api_version, context.client_id, request))
        return NO_REPLY

    def _fail(self, error: Exception) -> None:
        self.failures.append(error)


def read_in_full(frame: bytes) -> Served | type[Exception]:
    """What a handler must be given for a request; the type of the error if it is malformed."""
    try:
        key, version, _, client_id, position = decode_request_header(frame)
        api = next((api for api in APIS if api.key == key), None)
        if api is None or not api.versions[0] <= version <= api.versions[1]:
            return Disconnect
        return Served(version, client_id, decode(api.request, version, frame, position))
    except WireError:
        return WireError


def frames() -> st.SearchStrategy[bytes]:
    """Requests with few different headers, so that many are repeated; some are damaged."""
    client_ids = st.sampled_from([None, "", "a", "b", "ab", "client-1", "ü"])
    groups = st.sampled_from(["g", "group"])
    heartbeats = st.builds(lambda group, number: HeartbeatRequest(group, number, "member"), groups, st.integers(0, 2))
    requests = st.one_of(heartbeats, st.just(ListGroupsRequest()))
    whole = st.builds(
        lambda request, number, correlation_id, client_id: encode_request(
            request, type(request).API.versions[1] - number, correlation_id, client_id
        )[4:],
        requests,
        st.integers(0, 1),
        st.integers(0, 2**31 - 1),
        client_ids,
    )
    cut = st.builds(lambda frame, size: frame[:size], whole, st.integers(1, 30))
    damaged = st.builds(
        lambda frame, at, value: frame[: at % len(frame)] + bytes([value]) + frame[at % len(frame) + 1 :],
        whole,
        st.integers(0, 200),
        st.integers(0, 255),
    )
    return st.one_of(whole, whole, cut, damaged)


@given(st.lists(frames(), max_size=30), st.booleans())
def test_requests_with_kept_headers_are_served_as_if_each_was_read_in_full(sent: list[bytes], is_copied: bool) -> None:
    connection = HeaderConnection()
    for frame in sent:
        served, failed = len(connection.served), len(connection.failures)
        expected = read_in_full(frame)

        connection._serve(bytearray(frame) if is_copied else frame)

        if isinstance(expected, Served):
            assert connection.served[served:] == [expected]
            assert len(connection.failures) == failed
        else:
            assert [type(error) for error in connection.failures[failed:]] == [expected]
            assert len(connection.served) == served


def heartbeat(client_id: str | None, version: int = 4) -> bytes:
    return encode_request(HeartbeatRequest("g", 1, "m"), version, 7, client_id)[4:]


def test_requests_that_repeat_a_header_share_it() -> None:
    connection = HeaderConnection()
    for client_id in ("a", "a", "b"):
        connection._serve(heartbeat(client_id))

    assert [served.client_id for served in connection.served] == ["a", "a", "b"]
    (kept,) = connection._headers.known.values()
    assert kept.context.client_id == "b", "the last one"


def test_a_header_is_forgotten_when_other_handlers_serve_the_connection() -> None:
    connection = HeaderConnection()
    connection._serve(heartbeat("a"))
    refused: list[Any] = []

    def refuse(*arguments: Any) -> NoReply:
        refused.append(arguments)
        return NO_REPLY

    versions = HEARTBEAT.versions
    connection._headers.switch_handlers({HEARTBEAT.key: Handler(HEARTBEAT, refuse, versions, versions)})
    connection._serve(heartbeat("a"))

    assert (len(connection.served), len(refused)) == (1, 1)


@pytest.mark.parametrize(("length", "kept"), [(100, 1), (MAX_KEPT_BYTES, 0)])
def test_a_long_client_id_is_served_but_not_kept(length: int, kept: int) -> None:
    connection = HeaderConnection()

    connection._serve(heartbeat("x" * length))

    assert len(connection.served) == 1
    assert len(connection._headers.known) == kept


def test_a_client_that_invents_versions_has_few_headers_kept() -> None:
    connection = HeaderConnection()
    connection._headers.switch_handlers({API_VERSIONS.key: Handler(API_VERSIONS, connection._note, (0, 4), (0, 4))})
    for version in range(5, 1000):
        connection._serve(struct.pack(">hhihx", API_VERSIONS.key, version, 7, -1))
        assert 1 <= len(connection._headers.known) <= MAX_KEPT

    assert [served.version for served in connection.served] == [0] * 995, "KIP-511: the answer is in version 0"


@pytest.mark.parametrize(("group", "is_shared"), [("g", True), ("g" * MAX_KEPT_BYTES, False)], ids=["short", "long"])
def test_a_repeated_heartbeat_is_decoded_once_unless_it_is_long(group: str, is_shared: bool) -> None:
    connection = HeaderConnection()
    for generation in (1, 1, 2):
        connection._serve(encode_request(HeartbeatRequest(group, generation, "m"), 4, 7, "a")[4:])

    first, second, third = (served.request for served in connection.served)
    assert (second is first) == is_shared
    assert (first, second, third) == tuple(HeartbeatRequest(group, generation, "m") for generation in (1, 1, 2))


def test_other_requests_are_decoded_each_time() -> None:
    connection = HeaderConnection()
    for _ in range(2):
        connection._serve(encode_request(ListGroupsRequest(), 4, 7, "a")[4:])

    first, second = (served.request for served in connection.served)
    assert first == second
    assert first is not second, "its handler may change it"
