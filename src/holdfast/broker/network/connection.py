"""One client's connection: reads frames, serves one request at a time, sends replies in order.

While a request is parked or a reply waits for the peer to read, further requests wait in the socket: the connection
stops reading once it holds more than one read's worth of them. An invalid request closes this connection with one log
line and does not affect other connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from struct import error as StructError  # it is an exception
from time import monotonic
from types import CoroutineType, GeneratorType
from typing import Any, Final, cast

from holdfast.broker.api.replies import NO_REPLY, Disconnect, EncodedParts, PreEncoded, ReplyAndClose
from holdfast.broker.api.request import ClientSession
from holdfast.broker.authorization.acls import normalize_host
from holdfast.broker.clock import Timer
from holdfast.broker.network.bound_listener import BoundListener
from holdfast.broker.network.byte_stream import ByteStream, PlainStream
from holdfast.broker.network.environment import ConnectionEnvironment
from holdfast.broker.network.framing import LARGE_READ, FrameReader
from holdfast.broker.network.parked_request import ParkedRequest
from holdfast.broker.network.reply_writer import ReplyWriter
from holdfast.broker.network.request_header import (
    MAX_KEPT_BYTES,
    REST,
    Frame,
    RequestHeader,
    RequestHeaders,
    request_start,
)
from holdfast.broker.util.pending_answer import PendingAnswer
from holdfast.wire.apis.fetch import FETCH
from holdfast.wire.apis.produce import PRODUCE
from holdfast.wire.errors import WireError

logger = logging.getLogger(__name__)

PIPELINE_BYTES: Final = 64 * 1024
"""Requests kept in memory behind a parked one; further ones wait in the socket."""

LARGE_FRAME: Final = 16 * 1024
"""A larger request may have thousands of elements, so it is decoded in slices."""

YIELD_AFTER_SECONDS: Final = 0.002
"""How long the pipelined requests of one connection are served before other connections get their turn."""


PLAIN: Final = PlainStream()


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_clock",
        "_closed",
        "_draining",
        "_env",
        "_headers",
        "_known_headers",
        "_metrics",
        "_parked",
        "_peer_eof",
        "_pending_frames",
        "_reader",
        "_reading",
        "_services",
        "_socket",
        "_stream",
        "_transport",
        "_writer",
        "_yielded",
        "authentication_timer",
        "get_buffer",
        "last_active",
        "received_bytes",
        "session",
    )

    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]  # a method of `BufferedProtocol`

    def __init__(self, env: ConnectionEnvironment, listener: BoundListener, stream: ByteStream = PLAIN) -> None:
        config = env.config.current
        self._env = env
        self._services = env.services
        self._clock = env.clock
        self._stream = stream
        self._metrics = env.metrics if env.metrics.is_enabled else None
        self._reader = FrameReader(env.scratch, config.socket_request_max_bytes, env.memory, self)
        self.get_buffer = self._reader.buffer  # not wrapped in a method, which would cost a call with every read
        handlers = env.handlers
        if listener.mechanisms:
            # Before authentication, only a few short requests are read.
            handlers = env.pre_auth_handlers
            self._reader.set_limit(config.sasl_server_max_receive_size, "sasl.server.max.receive.size")
        self._pending_frames: deque[Frame] = deque()
        self._parked: ParkedRequest | None = None
        self._reading = True
        self._closed = False
        self._draining = False
        self._peer_eof = False
        self._writer: Any = None
        self._yielded = False
        self.session = ClientSession(listener, env.authorizer, self._authenticated)
        self._headers = RequestHeaders(env, self.session, handlers)
        self._known_headers = self._headers.known
        self.authentication_timer: Timer | None = None
        """Closes the connection if it has not authenticated in time; `Connections` keeps it here."""
        self.last_active = env.clock.now()
        self.received_bytes = 0

    # -- the event loop's calls ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.session.client_host = normalize_host(peer[0]) if peer else "?"
        original = transport.get_extra_info("socket")
        try:
            self._socket = socket.socket(fileno=socket.dup(original.fileno()))
        except OSError as error:
            self._closed = True
            logger.warning("cannot serve %s: %s", self.session.client_host, error.strerror)
            self._transport.abort()
            return
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        sink = self._stream.open_sink(self._socket)
        self._writer = ReplyWriter(loop, sink, self._env.replies, self._drained, self._write_failed, self._progressed)
        refusal = self._env.owner.admit(self)
        if refusal is not None:
            self.close(refusal)

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._clock.last_tick
        self.received_bytes += nbytes
        reader, pending = self._reader, self._pending_frames
        frame = reader.single_frame(nbytes)
        if frame is not None and not pending and self._parked is None and not self._writer.blocked:
            # The usual case: one request, and none before it.
            self._serve(frame)
            return
        frames = reader.feed(nbytes)
        if frames:
            pending.extend(frames)
            self._serve_pending()
        if pending or reader.starved or reader.broken:
            self._stop_reading_if_full()
        elif nbytes >= LARGE_READ:
            self._yield_read()

    def eof_received(self) -> bool:
        """As in Kafka, requests that were read are still served, because a producer with acks=0 may disconnect at
        once."""
        self._peer_eof = True
        return self._yielded or (self._parked is not None and self._parked.header.api is PRODUCE)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # how it ended changes nothing here
        if self._writer is None:
            return  # no file descriptor was left for it
        self._closed = True
        self._pending_frames.clear()
        if self._parked is not None:
            self._parked.cancel()
        self._writer.close()
        self._socket.close()
        self._env.owner.connection_closed(self)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _serve_pending(self) -> None:
        """Serves the pending requests in order, up to one that is parked or whose reply the peer does not read."""
        pending, writer = self._pending_frames, self._writer
        until = monotonic() + YIELD_AFTER_SECONDS
        while pending and self._parked is None and not self._closed and not writer.blocked:
            self._serve(pending.popleft())
            if pending and monotonic() > until:
                # Thousands of pipelined requests must not delay the other connections.
                if not self._yielded:
                    self._yielded = True
                    asyncio.get_running_loop().call_soon(self._serve_after_yield)
                break

    def _serve_after_yield(self) -> None:
        self._yielded = False
        self._serve_pending()
        self._close_or_resume_reading()

    def _close_or_resume_reading(self) -> None:
        if self._peer_eof and not self._yielded and self._parked is None:
            self.close(None)
            return
        self._resume_reading()

    def _serve(self, frame: Frame) -> None:
        try:
            try:
                start, correlation_id = request_start(frame)
            except StructError:
                start = correlation_id = 0  # too short; `read` says so
            header = self._known_headers.get(start)
            if header is None or frame[REST : header.position] != header.rest:
                header = self._headers.read(frame)
            began = 0.0 if self._metrics is None else monotonic()
            if len(frame) > LARGE_FRAME:
                self._env.replies.flush()  # the clients before it need not wait for it
                answer = self._env.slices.start(header.handle_in_slices(self._services, frame), self.session)
            else:
                if header.message is not None and frame[header.position :] == header.message:
                    request = header.request
                else:
                    request, _ = header.decode(frame, header.position)
                    if header.is_repeated and len(frame) <= MAX_KEPT_BYTES:
                        header.message, header.request = frame[header.position :], request
                answer = header.function(self._services, request, header.context)
                if type(answer) is GeneratorType:
                    answer = self._env.slices.start(answer, self.session)
            if type(answer) is CoroutineType or isinstance(answer, PendingAnswer):
                self._parked = ParkedRequest(header, correlation_id, frame, began, self._env.slices)
                self._parked.wait(answer, self._unpark)
                return
            sent = self._reply(header, correlation_id, answer)
            if self._metrics is not None:
                self._metrics.request_served(header.api.name, monotonic() - began, len(frame) + 4, sent)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this one connection's
            self._fail(error)
        if type(frame) is bytearray:
            self._release(frame)

    def _unpark(self, parked: ParkedRequest) -> None:
        self._parked = None
        if parked.is_cancelled or self._closed:
            return
        self.last_active = self._clock.now()
        header, frame = parked.header, parked.frame
        try:
            sent = self._reply(header, parked.correlation_id, parked.result())
            if self._metrics is not None:
                seconds = monotonic() - parked.began
                self._metrics.request_served(header.api.name, seconds, len(frame) + 4, sent)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this one connection's
            self._fail(error)
        if type(frame) is bytearray:
            self._release(frame)
        self._serve_pending()
        self._close_or_resume_reading()

    def _fail(self, error: Exception) -> None:
        """Closes the connection, with one log line: the request is malformed, or its handler failed."""
        if isinstance(error, WireError | Disconnect):
            self.close(str(error))
        else:
            logger.error("request of %s failed; closing its connection", self.session.client_host, exc_info=error)
            self.close(None)

    def _release(self, frame: bytearray) -> None:
        """A request is complete. The memory of its frame is returned to the pool."""
        self._env.memory.release(self, len(frame))

    def _reply(self, header: RequestHeader, correlation_id: int, response: Any) -> int:
        """Sends or queues the reply; returns its size."""
        kind = type(response)
        if kind is PreEncoded:
            body = response.body
        elif response is NO_REPLY:
            return 0
        elif kind is ReplyAndClose:
            size = self._reply(header, correlation_id, response.response)
            self.close(response.reason)
            return size
        elif kind is EncodedParts:
            return self._reply_parts(header, correlation_id, response.parts, response.size)
        else:
            parts: list[Any] = [b""]
            kind.encoders[header.context.api_version](response, parts)
            if header.api is FETCH:
                # The records stay in their files.
                return self._reply_parts(header, correlation_id, parts, sum(map(len, parts)))
            body = b"".join(parts)
        size = header.reply_header_bytes + len(body)
        self._writer.send(header.reply_start(size, correlation_id) + body)
        return size + 4

    def _reply_parts(self, header: RequestHeader, correlation_id: int, parts: list[Any], size: int) -> int:
        size += header.reply_header_bytes
        parts[0] = header.reply_start(size, correlation_id)
        self._writer.send_parts(parts, size + 4)
        return size + 4

    # -- the client ----------------------------------------------------------------------------------------------------

    @property
    def needs_authentication(self) -> bool:
        """The TLS handshake or the SASL exchange is not complete."""
        return not self._stream.is_established or self._headers.handlers is self._env.pre_auth_handlers

    def stream_established(self, principal: str | None) -> None:
        """Without SASL, the certificate says who the client is."""
        if not self.session.listener.mechanisms:
            self.session.authenticated(principal)

    def _authenticated(self) -> None:
        self._headers.switch_handlers(self._env.handlers)
        self._reader.set_limit(self._env.config.current.socket_request_max_bytes, "socket.request.max.bytes")
        self._env.owner.authenticated(self)

    # -- flow ----------------------------------------------------------------------------------------------------------

    def _drained(self) -> None:
        self.last_active = self._clock.now()
        if self._parked is None:
            self._serve_pending()
        self._resume_reading()

    def flush_stream(self) -> None:
        self._writer.flush_stream()

    def _progressed(self) -> None:
        self.last_active = self._clock.last_tick

    def _write_failed(self, error: Exception) -> None:
        is_expected = isinstance(error, OSError)
        level, trace = (logging.DEBUG, None) if is_expected else (logging.ERROR, error)
        logger.log(level, "writing to %s failed: %s", self.session.client_host, error, exc_info=trace)
        self.close(None)

    def _stop_reading_if_full(self) -> None:
        """A few pending requests do not stop reading, so that the end of the connection is still noticed."""
        reader = self._reader
        if reader.broken or reader.starved or sum(map(len, self._pending_frames)) > PIPELINE_BYTES:
            self._stop_reading()
        self._close_if_broken()

    def _stop_reading(self) -> None:
        if self._reading and not self._closed:
            self._reading = False
            self._transport.pause_reading()

    def _yield_read(self) -> None:
        """libuv reads a socket up to 32 times if each read fills the buffer. 32 MB would delay all other
        connections."""
        if self._reading and not self._closed:
            self._stop_reading()
            asyncio.get_running_loop().call_soon(self._resume_reading)

    def _close_if_broken(self) -> None:
        """No more requests can be read, and all earlier ones are answered."""
        if self._reader.broken and not self._pending_frames and self._parked is None:
            self._writer.flush()
            if not self._writer.blocked:
                self.close(self._reader.broken)

    def _resume_reading(self) -> None:
        self._close_if_broken()
        if self._reading or self._closed or self._pending_frames or self._reader.starved or self._reader.broken:
            return
        if self._draining:
            return
        self._reading = True
        self._transport.resume_reading()

    def retry_growth(self) -> None:
        """The memory pool has room again."""
        if not self._closed and self._reader.grow():
            self._resume_reading()

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def receiving(self) -> bool:
        return self._reader.has_partial_frame

    def start_draining(self) -> None:
        """Stops reading requests; those that were read are answered."""
        self._draining = True
        self._stop_reading()

    @property
    def has_reply_in_flight(self) -> bool:
        """A reply is being sent, or will be soon. Requests that wait for other clients do not count."""
        if self._closed or self._writer is None:
            return False
        return self._writer.has_unsent or (self._parked is not None and not self._parked.waits_for_other_clients)

    @property
    def parked(self) -> bool:
        return self._parked is not None

    def close(self, reason: str | None) -> None:
        """Closes the connection and logs `reason`. Replies that were written before are still sent."""
        if self._closed:
            return
        self._closed = True
        if reason is not None:
            logger.warning("closing the connection of %s: %s", self.session.client_host, reason)
        self._pending_frames.clear()
        if not self._writer.blocked:
            self._writer.flush()
            self._stream.close_notify()
        self._transport.abort()

    evict = close
