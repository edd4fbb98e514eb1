"""The requests of one client: each is forwarded as it arrives, or answered by the gateway.

Kafka answers the requests of a connection in order, and so does the gateway. A request that the gateway answers begins
when Kafka has answered everything before it, and requests behind it wait until it is answered: up to HELD_BYTES in
memory, further ones in the socket.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from time import monotonic
from typing import Final, Protocol

from holdfast.broker.network.framing import EAGER_BYTES
from holdfast.broker.network.request_memory import SMALL_BYTES, MemoryOwner, MemoryPool
from holdfast.gateway.router.acks import AcksReader
from holdfast.gateway.router.authentication import Authentication
from holdfast.gateway.router.environment import RouterEnvironment
from holdfast.gateway.router.expected import Expected
from holdfast.gateway.router.frames import COLLECT, MORE, PASS, WAIT, BrokenStream, FrameSplitter, Verdict
from holdfast.gateway.router.rules import BEFORE_AUTHENTICATION, Kind, Rule
from holdfast.gateway.router.settings import MAX_AUTHENTICATION_BYTES
from holdfast.gateway.router.upstream import MAX_OUTSTANDING, Upstream
from holdfast.wire.apis.api_versions import API_VERSIONS

HELD_BYTES: Final = 64 * 1024
"""Requests kept in memory behind one that the gateway answers. The last read may exceed it."""
YIELD_AFTER_SECONDS: Final = 0.002
"""How long the pipelined requests of one connection are answered before other connections get their turn."""
HEADER_BYTES: Final = 8
"""API key, version and correlation id. Every request has them."""

_header = Struct(">hhi").unpack_from


class Detached(BrokenStream):
    """Kafka has closed an idle connection on which the client had authenticated. The client has to connect again."""


class StreamOwner(MemoryOwner, Protocol):
    @property
    def can_reply(self) -> bool:
        """The client has read all earlier replies."""

    def begin_answer(self, frame: bytes) -> bytes | None:
        """The reply to a request; None if it comes later."""

    def respond(self, data: bytes) -> None: ...


class RequestStream:
    __slots__ = (
        "_acks",
        "_arrived",
        "_authentication",
        "_env",
        "_frames",
        "_has_yielded",
        "_held",
        "_held_bytes",
        "_is_starved",
        "_owner",
        "_pool",
        "_reserved",
        "_rules",
        "_until",
        "_upstream",
        "_waiting",
        "is_answering",
        "is_draining",
    )

    def __init__(
        self,
        env: RouterEnvironment,
        rules: dict[int, Rule],
        upstream: Upstream,
        authentication: Authentication,
        owner: StreamOwner,
    ) -> None:
        self._env = env
        self._rules = rules
        self._upstream = upstream
        self._authentication = authentication
        self._owner = owner
        self._frames = FrameSplitter(self)
        self._acks = AcksReader()
        self._held: deque[memoryview] = deque()
        """What was read and cannot be used yet."""
        self._held_bytes = 0
        self._waiting: bytes | None = None
        """A request that the gateway answers when Kafka has answered all earlier ones."""
        self._pool: MemoryPool = env.memory.small
        self._reserved = 0
        """Of the request that is arriving or being answered."""
        self._arrived = 0
        self._is_starved = False
        self._until = 0.0
        self._has_yielded = False
        self.is_answering = False
        self.is_draining = False
        """No further request may begin."""

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        return self._held_bytes <= HELD_BYTES and not self._is_starved

    @property
    def has_answer_due(self) -> bool:
        """The gateway is to answer a request, or is about to."""
        return self.is_answering or self._waiting is not None

    @property
    def is_held(self) -> bool:
        """Something was read and is not used yet."""
        return bool(self._held)

    @property
    def is_collecting(self) -> bool:
        return self._frames.is_collecting

    # -- the way in ----------------------------------------------------------------------------------------------------

    def received(self, data: memoryview) -> None:
        """Raises BrokenStream."""
        taken = 0
        if not self._held:
            self._until = 0.0
            taken = self._frames.feed(data)
        if taken < len(data):
            self._held.append(memoryview(data[taken:].tobytes()))
            self._held_bytes += len(data) - taken

    def proceed(self) -> None:
        """Kafka has answered, the client has read, or there is memory: what waited for it goes on. Raises
        BrokenStream."""
        self._until = 0.0
        self._begin_waiting()
        held = self._held
        while held:
            data = held[0]
            taken = self._frames.feed(data)
            self._held_bytes -= taken
            if taken < len(data):
                held[0] = data[taken:]
                break
            held.popleft()

    def retry_growth(self) -> None:
        """The memory pool has room again. Raises BrokenStream."""
        self._is_starved = False
        self.proceed()

    # -- requests that the gateway answers -----------------------------------------------------------------------------

    def frame_collected(self, frame: bytes) -> bool:
        self._arrived = 0
        self._waiting = frame
        self._begin_waiting()
        return not self.has_answer_due and not self._has_yielded

    def _begin_waiting(self) -> None:
        frame = self._waiting
        if frame is None or self.is_answering or self._upstream.is_outstanding or not self._owner.can_reply:
            return
        self._waiting = None
        self.is_answering = True
        reply = self._owner.begin_answer(frame)
        if reply is not None:
            self.answered(reply)
            self._yield_if_late()

    def answered(self, reply: bytes) -> None:
        """The request that was being answered has this reply."""
        self.is_answering = False
        if self._reserved:
            reserved, self._reserved = self._reserved, 0
            self._pool.release(self._owner, reserved)
        if reply:
            self._owner.respond(reply)

    def _yield_if_late(self) -> None:
        """Thousands of pipelined requests must not delay the other connections."""
        now = monotonic()
        if not self._until:
            self._until = now + YIELD_AFTER_SECONDS
        elif now > self._until and not self._has_yielded:
            self._has_yielded = True
            self._env.loop.call_soon(self._after_yield)

    def _after_yield(self) -> None:
        self._has_yielded = False
        self._owner.retry_growth()

    # -- the splitter's questions --------------------------------------------------------------------------------------

    def frame_begins(self, data: memoryview, position: int, end: int, size: int) -> Verdict:
        if self.has_answer_due or self.is_draining or self._has_yielded:
            return WAIT
        if self._authentication.expects_token:
            _check_authentication_size(size)
            return COLLECT
        limit = self._env.settings.request_max_bytes
        if not HEADER_BYTES <= size <= limit:
            raise BrokenStream(f"request of {size} bytes; the limit (socket.request.max.bytes) is {limit}")
        key, version, correlation_id = _header(data, position)
        if not self._authentication.is_complete and key not in BEFORE_AUTHENTICATION:
            raise BrokenStream(f"API key {key} before authentication")
        rule = self._rules.get(key)
        if rule is not None:
            if not 0 <= version <= rule.highest and key != API_VERSIONS.key:
                raise BrokenStream(f"{rule.name} version {version}; the gateway supports 0 to {rule.highest}")
            if rule.kind is Kind.LOCAL:
                self._check_session(rule)
                return COLLECT
        self._check_attached()
        if rule is not None and rule.kind is Kind.READ:
            _check_authentication_size(size)
            return COLLECT
        expected = self._upstream.expected
        if len(expected) >= MAX_OUTSTANDING:
            return WAIT
        if rule is None:
            expected.append(Expected(correlation_id))
            return PASS
        if rule.kind is Kind.PRODUCE:
            acks = self._acks.peek(data, position, end, version)
            if acks is None:
                return MORE
            if acks == 0:
                self._upstream.has_unanswered = True
                return PASS
        expected.append(rule.expected(correlation_id, version))
        return PASS

    def _check_session(self, rule: Rule) -> None:
        if self._authentication.has_expired:
            raise BrokenStream(f"{rule.name} after its session has expired (connections.max.reauth.ms)")

    def _check_attached(self) -> None:
        """Another connection to Kafka would not be authenticated."""
        is_authenticated = self._env.settings.upstream_uses_sasl and self._authentication.is_complete
        if is_authenticated and not self._upstream.is_open:
            raise Detached("Kafka has closed the connection")

    def reserve(self, size: int, count: int) -> bool:
        """A large length alone takes no memory. Once 64 KiB have arrived, a request of the usual size gets all its
        memory, so that several of them do not wait for each other's."""
        self._pool = self._env.memory.pool_for(size)
        arrived = self._arrived + count
        wanted = arrived if arrived < SMALL_BYTES else max(EAGER_BYTES, 2 * arrived)
        missing = min(size, wanted) - self._reserved
        self._is_starved = missing > 0 and not self._pool.reserve(self._owner, missing)
        if self._is_starved:
            return False
        self._arrived = arrived
        self._reserved += max(0, missing)
        return True

    def pass_on(self, data: memoryview | bytes) -> None:
        self._upstream.write(data)


def _check_authentication_size(size: int) -> None:
    if size > MAX_AUTHENTICATION_BYTES:
        raise BrokenStream(f"request of {size} bytes; the limit for authentication is {MAX_AUTHENTICATION_BYTES}")
