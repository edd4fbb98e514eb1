"""The other end of a connection: sends whatever it likes, and looks closely at what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from struct import Struct
from typing import Any

from holdfast.broker.api.replies import NO_REPLY, Disconnect
from holdfast.broker.config.listeners import Listener
from holdfast.broker.config.security import ListenerSecurity
from holdfast.broker.network.bound_listener import BoundListener
from holdfast.broker.network.connection import Connection
from holdfast.broker.network.request_header import REST, Frame, RequestHeader, request_start
from holdfast.wire.errors import WireError
from holdfast.wire.headers import decode_response
from holdfast.wire.message import Api, decode
from tests.fuzz.fuzzed_broker import FuzzedBroker

_int32 = Struct(">i")
_LISTENER = BoundListener(Listener("broker.test", 9092), ListenerSecurity())

Report = Callable[[BaseException], None]
"""Takes what must not happen, since the connection itself survives everything."""


class _Wire:
    """Transport, socket and outbox of a connection in one: bytes go to the peer at once."""

    def __init__(self, connection: PeerConnection) -> None:
        self._connection = connection
        self.blocked = False
        self.has_unsent = False
        self.replies: list[bytes] = []

    def send(self, reply: bytes) -> None:
        self.replies.append(reply)

    def send_parts(self, parts: list[bytes], _size: int) -> None:
        self.replies.append(b"".join(parts))

    def flush(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        asyncio.get_running_loop().call_soon(self._connection.receive, b"")

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self._connection.disconnect)

    def close(self) -> None:
        pass


class PeerConnection(Connection):
    """The broker's connection, with a wire that a test holds."""

    def __init__(self, broker: FuzzedBroker, report: Report, unserved: Set[int]) -> None:
        super().__init__(broker.environment, _LISTENER)
        wire: Any = _Wire(self)
        self._wire = wire
        self._transport = self._socket = self._writer = wire
        self._report = report
        self._unserved = unserved
        self._unread = b""
        self._lost = False
        self.session.client_host = "192.0.2.7"
        assert broker.connections.admit(self) is None

    # -- what the peer does --------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Bytes arrive; those that the connection does not want to read yet stay in the socket."""
        self._unread += data
        while self._unread and self._reading and not self._closed:
            room = self.get_buffer(-1)
            count = min(len(room), len(self._unread))
            room[:count] = self._unread[:count]
            self._unread = self._unread[count:]
            self.buffer_updated(count)

    def disconnect(self) -> None:
        if not self._lost:
            self._lost = True
            self.connection_lost(None)

    @property
    def is_open(self) -> bool:
        return not self._closed

    @property
    def is_pending(self) -> bool:
        """A request of this peer is not answered."""
        return self._parked is not None or bool(self._pending_frames)

    # -- what it looks at ----------------------------------------------------------------------------------------------

    def _serve(self, frame: Frame) -> None:
        if int.from_bytes(frame[:2]) in self._unserved:
            if isinstance(frame, bytearray):
                self._release(frame)
        else:
            super()._serve(frame)
            self._check_kept(frame)

    def _check_kept(self, frame: Frame) -> None:
        """A request that is kept for the next one is as it was sent."""
        header = self._headers.known.get(request_start(frame)[0]) if len(frame) >= REST else None
        if header is not None and header.message is not None:
            sent = decode(header.api.request, header.context.api_version, header.message)
            if header.request != sent:
                self._report(AssertionError(f"a handler of {header.api.name} changed its request"))

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, WireError | Disconnect):
            self._report(error)
        super()._fail(error)

    def _reply(self, header: RequestHeader, correlation_id: int, response: Any) -> int:
        api, version = header.api, header.context.api_version
        self._wire.replies.clear()
        try:
            size = super()._reply(header, correlation_id, response)
        except WireError as error:
            unwritable = AssertionError(f"a reply of {api.name} v{version} cannot be written: {error}")
            unwritable.__cause__ = error
            self._report(unwritable)
            raise
        if response is not NO_REPLY:
            (reply,) = self._wire.replies
            self._look_at(reply, api, version, correlation_id)
        return size

    def _look_at(self, reply: bytes, api: Api, version: int, correlation_id: int) -> None:
        assert _int32.unpack_from(reply)[0] == len(reply) - _int32.size
        answered, _ = decode_response(api, version, reply[_int32.size :])
        assert answered == correlation_id
