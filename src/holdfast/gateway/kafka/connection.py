"""One pipelined connection to one broker, on the event loop.

A broker answers the requests of one connection in order. Requests after a JoinGroup therefore wait until the join phase
is complete, so a JoinGroup should have a connection of its own. For the same reason, a request that is not answered for
long ends the connection: the responses to all later requests would be late, too.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, cast

from holdfast.client.addresses import Address
from holdfast.gateway.kafka.authentication import authenticate
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka.frames import FrameError, FrameReader
from holdfast.gateway.kafka.responses import (
    Decoding,
    correlation_id_of,
    decode_in_slices,
    decode_small,
    decoding_of_large,
)
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.gateway.kafka.sockets import connected_socket, handshake_error, is_tls_alert, reason, tls_refusal
from holdfast.gateway.kafka.versions import BrokerVersions
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.headers import encode_request
from holdfast.wire.message import Api

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 30.0
MAX_IN_FLIGHT: Final = 4096
"""Requests without an answer. Five for each of 32 state partitions, and some for every group that is being adopted."""
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""Bytes that wait in the gateway because the broker does not read them: eight of the largest batches."""

_REAUTHENTICATION_WINDOW: Final = (0.85, 0.95)
"""The part of a session's lifetime in which the client reauthenticates (KIP-368): before its end, and not all
connections at once."""
_LEAST_REAUTHENTICATION_S: Final = 1.0
"""Kafka rejects a reauthentication sooner than this after the last one."""
_FIRST_FRAMED_SASL: Final = 1
"""The version of SaslHandshake after which tokens are sent in SaslAuthenticate requests, since Kafka 1.0."""
_TLS_ALERT: Final = 0x15
_CLOCK_RESOLUTION_S: Final = 0.001
"""Of uvloop. A timer may fire that much before its time."""
_MOMENT_S: Final = 0.1


@dataclass(slots=True, eq=False)
class _Asked:
    """A request that has no response yet."""

    correlation_id: int
    api: Api
    version: int
    deadline: float
    timeout_s: float
    future: asyncio.Future[Any]


class KafkaConnection(asyncio.Protocol):
    """Made by `connect`. Once closed, it stays closed, and a new one is needed.

    Any: a request of `holdfast.wire.apis`, and its response.
    """

    def __init__(self, address: Address, settings: KafkaClientSettings, node_id: int | None) -> None:
        self.address: Final = address
        self.node_id: Final = node_id
        self.is_closed = False
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(settings.max_response_bytes)
        self._versions = BrokerVersions(address)
        self._asked: deque[_Asked] = deque()
        """In the order in which they were sent, and will be answered."""
        self._held: deque[tuple[_Asked, bytes]] | None = None
        """Requests that wait until the reauthentication under way is complete."""
        self._decoding: set[_Asked] = set()
        """Large responses, which are decoded little by little."""
        self._correlation_id = 0
        self._is_full = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._reauthentication: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost_actions: list[Callable[[], None]] = []
        self._failure: KafkaUnreachable | KafkaRefused | None = None
        self._is_ready = False
        self._is_served = False

    # -- requests ------------------------------------------------------------------------------------------------------

    def version_of(self, api: Api, highest: int | None = None) -> int:
        """The highest version that both sides support, up to `highest`. Raises KafkaRefused(UNSUPPORTED_VERSION)."""
        return self._versions.highest(api, highest)

    def send(
        self, request: Any, version: int | None = None, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> asyncio.Future[Any]:
        """Sends a request, by default in the highest common version. Requests are sent in the order of the calls.

        The future fails with KafkaUnreachable if the connection ends, also for the lack of an answer in `timeout_s`. A
        request that cannot be sent fails in the same way: after the end, or if too many are in flight.
        Raises KafkaRefused if the broker does not support the request in this version. The request must be one that
        Kafka answers, so a Produce needs acks.
        """
        api: Api = request.API
        if version is None:
            version = self._versions.highest(api)
        else:
            self._versions.check(api, version)
        return self._send(request, version, self._loop.time() + timeout_s, timeout_s)

    async def ask(self, request: Any, *, version: int | None = None, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """The response to a request; see `send`. A shorter time than that of `send` does not end the connection."""
        future = self.send(request, version, timeout_s=max(timeout_s, REQUEST_TIMEOUT_S))
        if timeout_s >= REQUEST_TIMEOUT_S:
            return await future
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise KafkaUnreachable(self._late(request.API, timeout_s)) from None

    def on_lost(self, action: Callable[[], None]) -> None:
        """`action` is called once when the connection has ended for any reason, after its futures have failed."""
        if self.is_closed:
            self._loop.call_soon(action)
        else:
            self._lost_actions.append(action)

    def close(self) -> None:
        """Ends the connection. A second call has no effect."""
        self._end(KafkaUnreachable(f"{self.address}: the connection has been closed by the gateway"))

    def _send(
        self, request: Any, version: int, deadline: float, timeout_s: float, *, held: bool = True
    ) -> asyncio.Future[Any]:
        """Without `held`, the request does not wait for a reauthentication."""
        future: asyncio.Future[Any] = self._loop.create_future()
        waits = held and self._held is not None
        if (obstacle := self._obstacle(waits)) is not None:
            _fail(future, obstacle)
            return future
        api: Api = request.API
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            frame = encode_request(request, version, self._correlation_id, self._settings.client_id)
        except WireError as failure:
            raise KafkaRefused(
                f"{api.name} v{version}, as spoken with {self.address}, cannot carry the request: {failure}",
                ErrorCode.UNSUPPORTED_VERSION,
            ) from failure
        asked = _Asked(self._correlation_id, api, version, deadline, timeout_s, future)
        if self._held is not None and held:
            self._held.append((asked, frame))
        else:
            self._asked.append(asked)
            cast(asyncio.Transport, self._transport).write(frame)
        if self._timer is None or deadline < self._timer_at:
            self._arm(deadline)
        return future

    def _obstacle(self, waits: bool) -> KafkaUnreachable | None:
        """Why no request can be sent."""
        if self._failure is not None:
            return KafkaUnreachable(str(self._failure))
        if self._is_full:
            return KafkaUnreachable(f"{self.address}: the broker does not read, {MAX_UNSENT_BYTES} bytes wait")
        if len(self._held or () if waits else self._asked) >= MAX_IN_FLIGHT:
            return KafkaUnreachable(f"{self.address}: {MAX_IN_FLIGHT} requests are in flight already")
        return None

    # -- responses -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._answered(frame)
                if self.is_closed:
                    return
        except FrameError as failure:
            self._broken(self._explain_frame(failure))

    def _answered(self, frame: memoryview) -> None:
        correlation_id = correlation_id_of(frame)
        if not self._asked or self._asked[0].correlation_id != correlation_id:
            expected = self._asked[0].correlation_id if self._asked else "none"
            self._broken(f"an answer with correlation id {correlation_id}, where {expected} was expected")
            return
        asked = self._asked.popleft()
        self._is_served = self._is_ready
        if asked.future.done():  # its caller was cancelled
            return
        if (work := decoding_of_large(asked.api, asked.version, frame)) is not None:
            self._decoding.add(asked)
            self._start(self._decode(asked, work))
            return
        try:
            response = decode_small(asked.api, asked.version, frame)
        except WireError as failure:
            self._undecodable(asked, failure)
        else:
            asked.future.set_result(response)

    async def _decode(self, asked: _Asked, work: Decoding) -> None:
        try:
            response = await decode_in_slices(work)
        except WireError as failure:
            self._undecodable(asked, failure)
        else:
            if not asked.future.done():
                asked.future.set_result(response)
        self._decoding.discard(asked)

    def _undecodable(self, asked: _Asked, failure: WireError) -> None:
        self._broken(f"an answer that is not {asked.api.name} v{asked.version}: {failure}")
        _fail(asked.future, KafkaUnreachable(str(self._failure)))

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        unanswered = chain(self._asked, (asked for asked, _ in self._held or ()))
        first = min(unanswered, key=lambda asked: asked.deadline, default=None)
        if first is None:
            return
        if first.deadline > self._loop.time() + _CLOCK_RESOLUTION_S:
            self._arm(first.deadline)
            return
        self._end(KafkaUnreachable(self._late(first.api, first.timeout_s)))

    def _late(self, api: Api, timeout_s: float) -> str:
        return f"{self.address}: no answer to {api.name} within {timeout_s:.1f} s{self._listener_hint}"

    # -- the transport -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_closed:
            return
        # With TLS 1.3, a rejection of the client's certificate arrives only after the client's handshake is complete.
        if exc is not None and is_tls_alert(exc) and not self._is_ready:
            self._end(tls_refusal(self.address, exc))
            return
        what = "closed by the broker" if exc is None else f"the connection broke: {reason(exc)}"
        if self._asked:
            names = ", ".join(sorted({asked.api.name for asked in self._asked}))
            what += f" before it answered {names}"
        what += self._listener_hint
        if self._is_ready and not self._is_served and self._settings.security.sasl is None:
            what += "; a listener that wants SASL does that: see security.protocol"
        self._end(KafkaUnreachable(f"{self.address}: {what}"))

    def _broken(self, what: str) -> None:
        self._end(KafkaUnreachable(f"{self.address}: the broker sent {what}"))

    def _end(self, failure: KafkaUnreachable | KafkaRefused) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self.is_closed = True
        if self._transport is not None:
            # Not `close`, which would wait until the broker has read everything, or has answered the end of TLS.
            self._transport.abort()
        for timer in (self._timer, self._reauthentication):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            if task is not asyncio.current_task(self._loop):
                task.cancel()
        for asked in chain(self._decoding, self._asked, (asked for asked, _ in self._held or ())):
            # A new exception for each, because the tracebacks of all callers would be added to one.
            code = failure.code if isinstance(failure, KafkaRefused) else None
            _fail(asked.future, KafkaUnreachable(str(failure)) if code is None else KafkaRefused(str(failure), code))
        self._decoding.clear()
        self._asked.clear()
        self._held = None
        actions, self._lost_actions = self._lost_actions, []
        for action in actions:
            try:
                action()
            except Exception:  # the others must run
                logger.exception("an action after the loss of a connection to Kafka failed")

    # -- error messages ------------------------------------------------------------------------------------------------

    @property
    def _listener_hint(self) -> str:
        """A hint for the error message if the server has not yet answered like a broker."""
        if self._versions.is_known:
            return ""
        guarded = self._settings.security
        wanting = ", and does it want a client certificate" if guarded.tls is not None else ""
        return f"; is this a Kafka listener for {guarded.protocol}{wanting}?"

    def _explain_frame(self, failure: FrameError) -> str:
        guarded = self._settings.security
        if failure.start[0] == _TLS_ALERT and guarded.tls is None:
            return f"TLS, but security.protocol is {guarded.protocol}: set it to SSL or SASL_SSL"
        return (
            f"a length of {failure.size} bytes, and at most {self._settings.max_response_bytes} are accepted; "
            f"its bytes begin with {failure.start!r}{self._listener_hint}"
        )

    # -- versions and SASL ---------------------------------------------------------------------------------------------

    async def prepare(self, deadline: float) -> None:
        """Gets the broker's API versions and authenticates with SASL. For `connect`, before any other request."""
        await self._versions.negotiate(lambda request, version: self._ask_now(request, version, deadline))
        await self._authenticate(deadline)
        self._is_ready = True

    async def _ask_now(self, request: Any, version: int, deadline: float) -> Any:
        """In spite of a reauthentication under way."""
        timeout_s = max(deadline - self._loop.time(), 0)
        return await self._send(request, version, deadline, timeout_s, held=False)

    async def _authenticate(self, deadline: float) -> None:
        sasl = self._settings.security.sasl
        if sasl is None:
            return
        if self.version_of(SASL_HANDSHAKE) < _FIRST_FRAMED_SASL:
            self._versions.check(SASL_HANDSHAKE, _FIRST_FRAMED_SASL)
        lifetime_ms = await authenticate(
            lambda request: self._ask_now(request, self.version_of(request.API), deadline), sasl, self.address
        )
        if lifetime_ms > 0 and not self.is_closed:
            delay_s = max(lifetime_ms / 1000 * random.uniform(*_REAUTHENTICATION_WINDOW), _LEAST_REAUTHENTICATION_S)
            self._reauthentication = self._loop.call_later(delay_s, self._begin_reauthentication)

    def _begin_reauthentication(self) -> None:
        """Kafka accepts no other request between SaslHandshake and the end of the exchange (KIP-368)."""
        self._held = deque()
        self._start(self._reauthenticate())

    async def _reauthenticate(self) -> None:
        # A JoinGroup before it may be answered much later. Kafka reads the exchange only then, and accepts it even if
        # the session has ended meanwhile.
        begins_by = max((asked.deadline for asked in self._asked), default=self._loop.time())
        try:
            await self._authenticate(begins_by + REQUEST_TIMEOUT_S)
        except (KafkaUnreachable, KafkaRefused) as failure:
            self._end(KafkaUnreachable(f"the session could not be renewed: {failure}"))
            return
        held, self._held = self._held or (), None
        if held:
            self._asked.extend(asked for asked, _ in held)
            cast(asyncio.Transport, self._transport).write(b"".join([frame for _, frame in held]))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)


def _fail(future: asyncio.Future[Any], failure: Exception) -> None:
    if not future.done():
        future.set_exception(failure)
        future.exception()  # a caller may use `on_lost` instead, and asyncio would log that nobody saw the failure


async def connect(
    address: Address,
    settings: KafkaClientSettings,
    *,
    node_id: int | None = None,
    timeout_s: float = CONNECT_TIMEOUT_S,
) -> KafkaConnection:
    """Connects with TCP and TLS, gets the broker's API versions, and authenticates with SASL.

    Raises KafkaUnreachable, or KafkaRefused if certificates or credentials are not accepted.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    connection = KafkaConnection(address, settings, node_id)
    try:
        # A moment later than a request that is not answered, whose error says more.
        async with asyncio.timeout_at(deadline + _MOMENT_S):
            await _open(connection, settings, deadline)
            await connection.prepare(deadline)
    except TimeoutError:
        connection.close()
        raise KafkaUnreachable(f"{address}: not connected within {timeout_s:.1f} s") from None
    except BaseException:
        connection.close()
        raise
    return connection


async def _open(connection: KafkaConnection, settings: KafkaClientSettings, deadline: float) -> None:
    address, tls = connection.address, settings.security.tls
    opened = await connected_socket(address, deadline)
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: connection, sock=opened, ssl=tls, server_hostname=address.host if tls is not None else None
        )
    except OSError as failure:
        opened.close()
        raise handshake_error(address, failure) from failure
    except BaseException:
        opened.close()
        raise
