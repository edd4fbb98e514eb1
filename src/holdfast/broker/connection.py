"""One client's connection: frames come in, one request at a time is answered, replies go out in order.

While a request is parked or a reply waits for the peer to read, further requests wait in the socket: the connection
stops reading once it holds more than one read's worth of them. Whatever is not a valid request closes this connection
with one log line, and no other is touched.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Coroutine
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast.broker.dispatch import HANDLERS, NO_REPLY, Disconnect, Encoded, Handler, RequestContext
from holdfast.broker.framing import FrameReader
from holdfast.broker.outbox import Outbox
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.errors import WireError
from holdfast.wire.headers import decode_request_header
from holdfast.wire.message import decoder, encoder

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

FLUSH_BYTES: Final = 64 * 1024
"""Replies to pipelined requests leave together, up to this many bytes."""

PIPELINE_BYTES: Final = 64 * 1024
"""Requests that wait behind a parked one, in our memory; further ones wait in the socket."""

_frame_start = Struct(">ii").pack
_frame_start_flexible = Struct(">iib").pack


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_broker",
        "_closed",
        "_outbox",
        "_parked",
        "_reader",
        "_reading",
        "_socket",
        "_transport",
        "_waiting",
        "client_host",
        "last_active",
    )

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reader = FrameReader(broker.scratch, broker.config.socket_request_max_bytes, broker.memory, self)
        self._waiting: deque[bytes | bytearray] = deque()
        self._parked: asyncio.Task[None] | None = None
        self._reading = True
        self._closed = False
        self.client_host = "?"
        self.last_active = broker.clock.now()

    # -- the event loop's calls ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = peer[0] if peer else "?"
        original = transport.get_extra_info("socket")
        self._socket = socket.socket(fileno=socket.dup(original.fileno()))
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outbox = Outbox(asyncio.get_running_loop(), self._socket, self._drained, self._write_failed)
        refusal = self._broker.admit(self)
        if refusal is not None:
            self.close(refusal)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the loop's wish; our buffers have their own sizes
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._broker.clock.now()
        reader = self._reader
        frames = reader.received(nbytes)
        if frames:
            self._waiting.extend(frames)
        if self._parked is None and not self._outbox.blocked:
            self._serve_waiting()
        if self._waiting or reader.starved or reader.broken:
            self._pause_reading_if_full()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # how it ended changes nothing here
        self._closed = True
        self._waiting.clear()
        if self._parked is not None:
            self._parked.cancel()
        self._outbox.close()
        self._socket.close()
        self._broker.forget(self)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _serve_waiting(self) -> None:
        """Answers the waiting requests in order, up to one that is parked or whose reply the peer does not take."""
        waiting = self._waiting
        while waiting and self._parked is None and not self._closed and not self._outbox.blocked:
            self._serve(waiting.popleft())
            if self._outbox.queued_bytes > FLUSH_BYTES:
                self._outbox.flush()
        if not self._closed:
            self._outbox.flush()
            if self._reader.broken and not waiting and self._parked is None and not self._outbox.blocked:
                self.close(self._reader.broken)

    def _serve(self, frame: bytes | bytearray) -> None:
        try:
            api_key, version, correlation_id, client_id, position = decode_request_header(frame)
            handler = HANDLERS.get(api_key)
            if handler is None:
                raise Disconnect(f"unknown API key {api_key}")
            lowest, highest = handler.served
            if not lowest <= version <= highest:
                if handler.api is not API_VERSIONS:
                    raise Disconnect(f"{handler.api.name} version {version}; served are {lowest} to {highest}")
                self._reply(handler, 0, correlation_id, self._broker.unsupported_api_versions)
                return
            request, _ = decoder(handler.api.request, version)(frame, position)
            context = RequestContext(self, version, correlation_id, client_id)
            answer = handler.function(self._broker, request, context)
            if isinstance(answer, Coroutine):
                self._parked = asyncio.get_running_loop().create_task(self._park(answer, handler, context, frame))
                return
            self._reply(handler, version, correlation_id, answer)
        except (WireError, Disconnect) as error:
            self.close(str(error))
        except Exception:
            logger.exception("request of %s failed; closing its connection", self.client_host)
            self.close(None)
        self._release(frame)

    async def _park(
        self,
        answer: Coroutine[Any, Any, Any],
        handler: Handler,
        context: RequestContext,
        frame: bytes | bytearray,
    ) -> None:
        try:
            response = await answer
        except asyncio.CancelledError:
            raise
        except (WireError, Disconnect) as error:
            self._parked = None
            self.close(str(error))
            return
        except Exception:
            logger.exception("request of %s failed; closing its connection", self.client_host)
            self._parked = None
            self.close(None)
            return
        self._parked = None
        if self._closed:
            return
        self.last_active = self._broker.clock.now()
        try:
            self._reply(handler, context.api_version, context.correlation_id, response)
        except WireError:
            logger.exception("a %s reply could not be encoded; closing the connection", handler.api.name)
            self.close(None)
        self._release(frame)
        self._serve_waiting()
        self._resume_reading()

    def _release(self, frame: bytes | bytearray) -> None:
        """A request is done: the memory of a frame that had some of its own goes back to the pool."""
        if type(frame) is bytearray:
            self._broker.memory.release(self, len(frame))

    def _reply(self, handler: Handler, version: int, correlation_id: int, response: Any) -> None:
        api = handler.api
        # KIP-511: the ApiVersions response header has no tags, so that any client can read it.
        flexible = version >= api.flexible and api is not API_VERSIONS
        if type(response) is Encoded:
            body = response.body
            size = len(body) + (5 if flexible else 4)
            start = _frame_start_flexible(size, correlation_id, 0) if flexible else _frame_start(size, correlation_id)
            self._outbox.add([start + body], size + 4)
            return
        if response is NO_REPLY:
            return
        parts: list[Any] = [b""]
        encoder(type(response), version)(response, parts)
        size = sum(map(len, parts)) + (5 if flexible else 4)
        parts[0] = _frame_start_flexible(size, correlation_id, 0) if flexible else _frame_start(size, correlation_id)
        self._outbox.add(parts, size + 4)

    # -- flow ----------------------------------------------------------------------------------------------------------

    def _drained(self) -> None:
        self.last_active = self._broker.clock.now()
        if self._parked is None:
            self._serve_waiting()
        self._resume_reading()

    def _write_failed(self, error: OSError) -> None:
        logger.debug("writing to %s failed: %s", self.client_host, error)
        self.close(None)

    def _pause_reading_if_full(self) -> None:
        """A few waiting requests do not stop the reading, so that a client's leaving is still noticed."""
        full = self._reader.starved or self._reader.broken or sum(map(len, self._waiting)) > PIPELINE_BYTES
        if full and self._reading and not self._closed:
            self._reading = False
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading or self._closed or self._waiting or self._reader.starved or self._reader.broken:
            return
        self._reading = True
        self._transport.resume_reading()

    def retry_growth(self) -> None:
        """The memory pool has room again."""
        if not self._closed and self._reader.grow():
            self._resume_reading()

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def parked(self) -> bool:
        return self._parked is not None

    def evict(self, reason: str) -> None:
        self.close(reason)

    def close(self, reason: str | None) -> None:
        """Ends the connection; `reason` becomes its one log line. Replies written before still go out."""
        if self._closed:
            return
        self._closed = True
        if reason is not None:
            logger.warning("closing the connection of %s: %s", self.client_host, reason)
        self._waiting.clear()
        if not self._outbox.blocked:
            self._outbox.flush()
        self._transport.abort()
