"""The other end of a connection: sends whatever it likes, and looks closely at what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from struct import Struct
from typing import Any

from holdfast.broker.connection import Connection, Frame
from holdfast.broker.dispatch import NO_REPLY, Disconnect, Handler
from holdfast.broker.doors import Door
from holdfast.broker.listener import Listener
from holdfast.broker.security.settings import DoorSettings
from holdfast.broker.server import Broker
from holdfast.wire.errors import WireError
from holdfast.wire.headers import decode_response

_int32 = Struct(">i")
_DOOR = Door(Listener("broker.test", 9092), DoorSettings())

Report = Callable[[BaseException], None]
"""Takes what must not happen, since the connection itself survives everything."""


class _Wire:
    """Transport, socket and outbox of a connection in one: bytes go to the peer at once."""

    def __init__(self, connection: PeerConnection) -> None:
        self._connection = connection
        self.queued_bytes = 0
        self.blocked = False
        self.replies: list[bytes] = []

    def add(self, parts: list[bytes], _size: int) -> None:
        self.replies.append(b"".join(parts))

    def send(self, reply: bytes) -> None:
        self.replies.append(reply)

    def flush(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        asyncio.get_running_loop().call_soon(self._connection.receive, b"")

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self._connection.hang_up)

    def close(self) -> None:
        pass


class PeerConnection(Connection):
    """The broker's connection, with a wire that a test holds."""

    def __init__(self, broker: Broker, report: Report, unserved: Set[int]) -> None:
        super().__init__(broker, _DOOR)
        wire: Any = _Wire(self)
        self._wire = wire
        self._transport = self._socket = self._outbox = wire
        self._report = report
        self._unserved = unserved
        self._unread = b""
        self._lost = False
        self.client_host = "192.0.2.7"
        assert broker.admit(self) is None

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

    def hang_up(self) -> None:
        if not self._lost:
            self._lost = True
            self.connection_lost(None)

    @property
    def is_open(self) -> bool:
        return not self._closed

    @property
    def waits(self) -> bool:
        """A request of this peer is not answered."""
        return self._parked is not None or bool(self._waiting)

    # -- what it looks at ----------------------------------------------------------------------------------------------

    def _serve(self, frame: Frame) -> None:
        if int.from_bytes(frame[:2]) in self._unserved:
            self._release(frame)
        else:
            super()._serve(frame)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, WireError | Disconnect):
            self._report(error)
        super()._fail(error)

    def _reply(self, handler: Handler, version: int, correlation_id: int, response: Any) -> None:
        self._wire.replies.clear()
        try:
            super()._reply(handler, version, correlation_id, response)
        except WireError as error:
            unwritable = AssertionError(f"a reply of {handler.api.name} v{version} cannot be written: {error}")
            unwritable.__cause__ = error
            self._report(unwritable)
            raise
        if response is not NO_REPLY:
            (reply,) = self._wire.replies
            self._look_at(reply, handler, version, correlation_id)

    def _look_at(self, reply: bytes, handler: Handler, version: int, correlation_id: int) -> None:
        assert _int32.unpack_from(reply)[0] == len(reply) - _int32.size
        answered, _ = decode_response(handler.api, version, reply[_int32.size :])
        assert answered == correlation_id
