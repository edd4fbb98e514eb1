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
from functools import partial
from struct import Struct
from time import monotonic
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast.broker.dispatch import NO_REPLY, Disconnect, Encoded, EncodedParts, Handler, LastReply, RequestContext
from holdfast.broker.framing import SCRATCH_BYTES, FrameReader
from holdfast.broker.outbox import Outbox
from holdfast.broker.security.acls import host_of
from holdfast.broker.slices import Work, let_go
from holdfast.log import FileRegion
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.apis.fetch import FETCH
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.join_groups import JOIN_GROUPS
from holdfast.wire.apis.produce import PRODUCE
from holdfast.wire.apis.sync_group import SYNC_GROUP
from holdfast.wire.errors import WireError
from holdfast.wire.headers import decode_request_header
from holdfast.wire.message import Api, decoder, encoder, sliced_decoder, sliced_encoder

if TYPE_CHECKING:
    from holdfast.broker.clock import Timer
    from holdfast.broker.doors import Door
    from holdfast.broker.security.sasl import Exchange
    from holdfast.broker.security.user_desk import Access
    from holdfast.broker.server import Broker
    from holdfast.coordinator.members import Client

logger = logging.getLogger(__name__)

FLUSH_BYTES: Final = 64 * 1024
"""Replies to pipelined requests leave together, up to this many bytes."""

PIPELINE_BYTES: Final = 64 * 1024
"""Requests that wait behind a parked one, in our memory; further ones wait in the socket."""

LARGE_READ: Final = SCRATCH_BYTES // 2
"""A read of this many bytes comes from a client that has more to send than we should take at once."""

LARGE_FRAME: Final = 16 * 1024
"""A request of more bytes may have thousands of elements: it is decoded in slices."""

JOINED_PARTS: Final = 1024
"""As many pieces of a large reply are joined at a time."""

TURN_SECONDS: Final = 0.002
"""How long one connection's pipelined requests are answered before the others get their turn."""

_frame_start = Struct(">ii").pack
_frame_start_flexible = Struct(">iib").pack

WAIT_FOR_OTHERS: Final = (FETCH, JOIN_GROUP, JOIN_GROUPS, SYNC_GROUP)
"""Requests that wait for what other clients do: for records, or for the members of a group."""
ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's name for one who was not asked who he is."""

Frame = bytes | bytearray


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_access",
        "_broker",
        "_closed",
        "_door",
        "_handlers",
        "_is_ending",
        "_outbox",
        "_parked",
        "_parked_api",
        "_peer_is_done",
        "_reader",
        "_reading",
        "_socket",
        "_transport",
        "_turn_is_due",
        "_waiting",
        "client_host",
        "client_software",
        "deadline",
        "exchange",
        "group_client",
        "last_active",
        "principal",
        "received_bytes",
        "rests_until",
    )

    def __init__(self, broker: Broker, door: Door) -> None:
        self._broker = broker
        self._door = door
        self._reader = FrameReader(broker.scratch, broker.config.socket_request_max_bytes, broker.memory, self)
        self._handlers = broker.handlers
        if door.mechanisms:
            # Until we know who it is, we listen to nothing else, and to nothing long.
            self._handlers = broker.doorway
            self._reader.limit(broker.config.sasl_server_max_receive_size, "sasl.server.max.receive.size")
        self._waiting: deque[Frame] = deque()
        self._parked: asyncio.Task[Any] | None = None
        self._reading = True
        self._closed = False
        self._is_ending = False
        self._peer_is_done = False
        self._parked_api: Api | None = None
        self._outbox: Any = None
        self._turn_is_due = False
        self.client_host = "?"
        self.client_software = ""
        """As ApiVersions named it last."""
        self.principal = ANONYMOUS
        self._access: Access | None = None
        self.exchange: Exchange | None = None
        """How far the client is with proving who it is."""
        self.deadline: Timer | None = None
        """When a stranger has to go; the broker keeps it here."""
        self.group_client: Client | None = None
        """Who sends the requests of groups over this connection; `Groups` keeps it here."""
        self.last_active = broker.clock.now()
        self.received_bytes = 0
        self.rests_until = 0.0
        """Its next request that takes long waits until then; `Slices` keeps it here."""

    # -- the event loop's calls ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = host_of(peer[0]) if peer else "?"
        original = transport.get_extra_info("socket")
        try:
            self._socket = socket.socket(fileno=socket.dup(original.fileno()))
        except OSError as error:
            self._closed = True
            logger.warning("cannot serve %s: %s", self.client_host, error.strerror)
            self._transport.abort()
            return
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._outbox = self._make_outbox()
        refusal = self._broker.admit(self)
        if refusal is not None:
            self.close(refusal)

    def _make_outbox(self) -> Outbox:
        return Outbox(asyncio.get_running_loop(), self._socket, self._drained, self._write_failed, self._progressed)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the loop's wish; our buffers have their own sizes
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._broker.clock.coarse
        self.received_bytes += nbytes
        reader, waiting = self._reader, self._waiting
        frame = reader.whole(nbytes)
        if frame is not None and not waiting and self._parked is None and not self._outbox.blocked:
            # The usual case, on the shortest way: one request, and nothing before it.
            self._serve(frame)
            self._outbox.flush()
            return
        frames = reader.received(nbytes)
        if frames:
            waiting.extend(frames)
            self._serve_waiting()
        if waiting or reader.starved or reader.broken:
            self._stop_reading_if_full()
        elif nbytes >= LARGE_READ:
            self._let_others_read()

    def eof_received(self) -> bool:
        """What waits for nothing but its turn is still served, as by Kafka: nobody stays for the answer to acks=0."""
        self._peer_is_done = True
        return self._turn_is_due or (self._parked is not None and self._parked_api is PRODUCE)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # how it ended changes nothing here
        if self._outbox is None:
            return  # there was no file descriptor left to begin with
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
        waiting, outbox = self._waiting, self._outbox
        until = monotonic() + TURN_SECONDS
        while waiting and self._parked is None and not self._closed and not outbox.blocked:
            self._serve(waiting.popleft())
            if outbox.queued_bytes > FLUSH_BYTES:
                outbox.flush()
            if waiting and monotonic() > until:
                # The others first; thousands of pipelined requests are no reason to let everybody wait.
                if not self._turn_is_due:
                    self._turn_is_due = True
                    asyncio.get_running_loop().call_soon(self._next_turn)
                break
        if not self._closed:
            outbox.flush()

    def _next_turn(self) -> None:
        self._turn_is_due = False
        self._serve_waiting()
        self._close_or_read_on()

    def _close_or_read_on(self) -> None:
        if self._peer_is_done and not self._turn_is_due and self._parked is None:
            self.close(None)
            return
        self._resume_reading()

    def _serve(self, frame: Frame) -> None:
        try:
            api_key, version, correlation_id, client_id, position = decode_request_header(frame)
            handler = self._handlers.get(api_key)
            if handler is None:
                raise self._no_handler(api_key)
            lowest, highest = handler.served
            if lowest <= version <= highest:
                context = RequestContext(self, version, correlation_id, client_id)
                if len(frame) > LARGE_FRAME:
                    answer = self._broker.slices.begin(self._handle_large(handler, context, frame, position), self)
                else:
                    request, _ = decoder(handler.api.request, version)(frame, position)
                    answer = handler.function(self._broker, request, context)
                    if type(answer) is GeneratorType:
                        answer = self._broker.slices.begin(answer, self)
                if type(answer) is CoroutineType:
                    self._park(answer, handler, context, frame)
                    return
                self._reply(handler, version, correlation_id, answer)
            elif handler.api is API_VERSIONS:
                self._reply(handler, 0, correlation_id, self._broker.unsupported_api_versions)
            else:
                raise Disconnect(f"{handler.api.name} version {version}; served are {lowest} to {highest}")
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this one connection's
            self._fail(error)
        self._release(frame)

    def _handle_large(self, handler: Handler, context: RequestContext, frame: Frame, position: int) -> Work[Any]:
        request, _ = yield from sliced_decoder(handler.api.request, context.api_version)(frame, position)
        answer = handler.function(self._broker, request, context)
        return (yield from answer) if type(answer) is GeneratorType else answer

    def _park(self, answer: Coroutine[Any, Any, Any], handler: Handler, context: RequestContext, frame: Frame) -> None:
        """The answer has to wait, and with it the requests behind it."""
        self._parked_api = handler.api
        self._parked = asyncio.get_running_loop().create_task(self._encoded(answer, context.api_version))
        self._parked.add_done_callback(partial(self._unpark, handler, context, frame))
        self._parked.add_done_callback(lambda _: answer.close())  # it may have been cancelled before it began

    def _unpark(self, handler: Handler, context: RequestContext, frame: Frame, parked: asyncio.Task[Any]) -> None:
        self._parked = None
        if parked.cancelled() or self._closed:
            return
        self.last_active = self._broker.clock.now()
        try:
            self._reply(handler, context.api_version, context.correlation_id, parked.result())
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this one connection's
            self._fail(error)
        self._release(frame)
        self._serve_waiting()
        self._close_or_read_on()

    async def _encoded(self, answer: Coroutine[Any, Any, Any], version: int) -> Any:
        """The answer when it is there. What took long to find takes long to encode, too."""
        response = await answer
        if type(response) in (Encoded, LastReply) or response is NO_REPLY:
            return response
        encoded = await self._broker.slices.finish(_encode(response, version))
        if self._parked_api not in WAIT_FOR_OTHERS:  # whose responses may be those of others, too
            await self._broker.slices.finish(_let_go(response))
        return encoded

    def _fail(self, error: Exception) -> None:
        """A request that is malformed closes its connection with one log line; one that we could not answer, too."""
        if isinstance(error, WireError | Disconnect):
            self.close(str(error))
        else:
            logger.error("request of %s failed; closing its connection", self.client_host, exc_info=error)
            self.close(None)

    def _no_handler(self, api_key: int) -> Disconnect:
        if self._handlers is self._broker.doorway and api_key in self._broker.handlers:
            return Disconnect(f"{self._broker.handlers[api_key].api.name} before authentication")
        return Disconnect(f"unknown API key {api_key}")

    def _release(self, frame: Frame) -> None:
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
            self._send(start + body)
            return
        if response is NO_REPLY:
            return
        if type(response) is LastReply:
            self._reply(handler, version, correlation_id, response.response)
            self.close(response.reason)
            return
        if type(response) is EncodedParts:
            parts, size = response.parts, response.size
        else:
            parts = [b""]
            encoder(type(response), version)(response, parts)
            size = sum(map(len, parts))
        size += 5 if flexible else 4
        parts[0] = _frame_start_flexible(size, correlation_id, 0) if flexible else _frame_start(size, correlation_id)
        if api is FETCH or size > FLUSH_BYTES:
            # With records that stay in their files, or too much to be copied once more.
            self._outbox.add(parts, size + 4)
        else:
            self._send(b"".join(parts))

    def _send(self, reply: bytes) -> None:
        if self._waiting:
            self._outbox.add([reply], len(reply))  # with the replies to those behind it
        else:
            self._outbox.send(reply)

    # -- who it is -----------------------------------------------------------------------------------------------------

    @property
    def door(self) -> Door:
        return self._door

    @property
    def is_stranger(self) -> bool:
        """It is still to be seen who this is."""
        return self._handlers is self._broker.doorway

    @property
    def access(self) -> Access | None:
        if self._access is None and self._broker.users is not None:
            self._access = self._broker.users.access(self.principal, self.client_host)
        return self._access

    def authenticated(self, principal: str | None) -> None:
        """From now on everything is served, as far as the principal may ask for it."""
        self.principal = principal or ANONYMOUS
        self._access = None
        self.exchange = None
        self._handlers = self._broker.handlers
        self._reader.limit(self._broker.config.socket_request_max_bytes, "socket.request.max.bytes")
        self._broker.known(self)

    # -- flow ----------------------------------------------------------------------------------------------------------

    def _drained(self) -> None:
        self.last_active = self._broker.clock.now()
        if self._parked is None:
            self._serve_waiting()
        self._resume_reading()

    def _progressed(self) -> None:
        self.last_active = self._broker.clock.coarse

    def _write_failed(self, error: OSError) -> None:
        logger.debug("writing to %s failed: %s", self.client_host, error)
        self.close(None)

    def _stop_reading_if_full(self) -> None:
        """A few waiting requests do not stop the reading, so that a client's leaving is still noticed."""
        reader = self._reader
        if reader.broken or reader.starved or sum(map(len, self._waiting)) > PIPELINE_BYTES:
            self._stop_reading()
        self._close_if_broken()

    def _stop_reading(self) -> None:
        if self._reading and not self._closed:
            self._reading = False
            self._transport.pause_reading()

    def _let_others_read(self) -> None:
        """libuv reads a socket up to 32 times while it keeps filling our buffer; 32 MB of it would stop everybody."""
        if self._reading and not self._closed:
            self._stop_reading()
            asyncio.get_running_loop().call_soon(self._resume_reading)

    def _close_if_broken(self) -> None:
        """Nothing can be read any more, and what came before is answered."""
        if self._reader.broken and not self._waiting and self._parked is None and not self._outbox.blocked:
            self.close(self._reader.broken)

    def _resume_reading(self) -> None:
        self._close_if_broken()
        if self._reading or self._closed or self._waiting or self._reader.starved or self._reader.broken:
            return
        if self._is_ending:
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
        return self._reader.midway

    def serve_out(self) -> None:
        """Takes no more requests; those it has are answered."""
        self._is_ending = True
        self._stop_reading()

    @property
    def awaits_an_answer(self) -> bool:
        """A request will be answered soon, or its answer is on the way. One that waits for other clients may not be."""
        if self._closed or self._outbox is None:
            return False
        return self._outbox.blocked or (self._parked is not None and self._parked_api not in WAIT_FOR_OTHERS)

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
            self._say_goodbye()
        self._transport.abort()

    def _say_goodbye(self) -> None:
        """Nothing is said without TLS."""


def _encode(response: Any, version: int) -> Work[EncodedParts]:
    """The response in as few pieces as possible: records that are still in their files stay as they are."""
    parts: list[Any] = []
    joined: list[Any] = [b""]
    size = 0
    for _ in sliced_encoder(type(response), version)(response, parts):
        if len(parts) >= JOINED_PARTS:
            size += _join(parts, joined)
        yield
    size += _join(parts, joined)
    return EncodedParts(joined, size)


def _let_go(response: Any) -> Work[None]:
    """A hundred thousand objects at once would take long to give back."""
    for name in response.__slots__:
        things = getattr(response, name)
        if type(things) is list:
            yield from let_go(things)


def _join(parts: list[Any], joined: list[Any]) -> int:
    """Moves the parts to `joined`, as one if they are all bytes; returns how many bytes they are."""
    size = sum(map(len, parts))
    if all(map(_is_bytes, parts)):
        joined.append(b"".join(parts))
    else:
        joined.extend(parts)
    parts.clear()
    return size


def _is_bytes(part: Any) -> bool:
    return type(part) is not FileRegion
