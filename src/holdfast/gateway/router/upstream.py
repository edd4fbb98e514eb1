"""A client's own connection to its broker: opened with the first request for Kafka, and closed with the client's."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol

from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.router.channel import Channel
from holdfast.gateway.router.dialer import Dialed
from holdfast.gateway.router.environment import RouterEnvironment
from holdfast.gateway.router.expected import Expected
from holdfast.gateway.router.frames import COLLECT, MORE, PASS, BrokenStream, FrameSplitter, Replace, Verdict
from holdfast.gateway.router.tls_channel import TlsChannel
from holdfast.wire.errors import WireError

logger = logging.getLogger(__name__)

MAX_COLLECTED_BYTES: Final = 100 * 1024 * 1024
"""The size limit of responses that cannot pass on as they arrive."""
MAX_OUTSTANDING: Final = 1000
"""Kafka works on one request of a connection at a time, so further ones may as well wait in the socket."""

_correlation_id = Struct(">i").unpack_from


class UpstreamUser(Protocol):
    def respond(self, data: memoryview | bytes) -> None:
        """Bytes for the client, in order. The data is valid during the call only."""

    def upstream_progressed(self) -> None:
        """A response is complete, or unsent data has been sent."""

    def upstream_ended(self, reason: str | None) -> None:
        """There is no connection any more; the reason is None if Kafka has closed it while no response was due."""


class Upstream:
    __slots__ = (
        "_channel",
        "_closed",
        "_collected",
        "_connecting",
        "_early",
        "_ends",
        "_env",
        "_node_id",
        "_paused",
        "_responses",
        "_topics_changed",
        "_user",
        "expected",
        "has_unanswered",
        "lost_unanswered",
        "received_bytes",
    )

    def __init__(self, env: RouterEnvironment, node_id: int | None, user: UpstreamUser) -> None:
        self._env = env
        self._node_id = node_id
        self._user = user
        self._channel: Channel | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        """Written before the connection was open."""
        self._ends = False
        self._paused = False
        self._closed = False
        self._responses = FrameSplitter(self)
        self._collected: Expected | None = None
        self._topics_changed = False
        self.expected: deque[Expected] = deque()
        self.has_unanswered = False
        """A request without a response was sent. Kafka closes the connection if it fails."""
        self.lost_unanswered = False
        """The same of the last connection, when it ended."""
        self.received_bytes = 0

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """The connection is open or being opened."""
        return self._channel is not None or self._connecting is not None

    @property
    def is_outstanding(self) -> bool:
        """Responses are due, or one is arriving."""
        return bool(self.expected) or self._responses.is_inside

    @property
    def unsent(self) -> int:
        return sum(map(len, self._early)) if self._channel is None else self._channel.unsent

    @property
    def progress(self) -> int:
        return self.received_bytes + (0 if self._channel is None else self._channel.progress)

    def write(self, data: memoryview | bytes) -> None:
        if self._channel is not None:
            self._channel.write(data)
        elif not self._closed:
            self._early.append(bytes(data))
            if self._connecting is None:
                self._connecting = self._env.loop.create_task(self._connect())

    def exchange(self, frame: bytes, correlation_id: int | None) -> asyncio.Future[bytes]:
        """Sends a whole request; the future gets the response without its length, or KafkaUnreachable."""
        future: asyncio.Future[bytes] = self._env.loop.create_future()
        self.expected.append(Expected(correlation_id, future))
        self.write(frame)
        return future

    async def _connect(self) -> None:
        try:
            dialed = await self._env.dialer.dial(self._node_id)
            self._channel = channel = self._make_channel(dialed)
        except KafkaUnreachable as error:
            self._connecting = None
            self.ended_because(str(error))
            return
        except Exception as error:  # whatever it is, it is this one connection's
            logger.exception("cannot connect to broker %s", self._node_id)
            self._connecting = None
            self.ended_because(str(error))
            return
        self._connecting = None
        channel.start()
        early, self._early = self._early, []
        for data in early:
            channel.write(data)
        if self._paused:
            channel.pause()
        if self._ends:
            channel.write_end()
        self._user.upstream_progressed()

    def _make_channel(self, dialed: Dialed) -> Channel:
        env = self._env
        tls = env.settings.upstream_tls
        if tls is None:
            return Channel(env.loop, dialed.socket, self, env.buffer)
        return TlsChannel(env.loop, dialed.socket, self, env.buffer, tls, dialed.host)

    # -- flow ----------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """The client does not read."""
        self._paused = True
        if self._channel is not None:
            self._channel.pause()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._channel is not None:
                self._channel.resume()

    def finish(self) -> None:
        """The client sends nothing more. What it has sent goes to Kafka, which then closes the connection."""
        is_first = not self._ends
        self._ends = True
        if is_first and self._channel is not None:
            self._channel.write_end()

    def close(self) -> None:
        self._closed = True
        self._drop("the client has disconnected")

    def _drop(self, reason: str) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._early.clear()
        owed, self._collected = [*filter(None, [self._collected]), *self.expected], None
        self.expected.clear()
        for one in owed:
            one.fail(reason)

    # -- the channel's calls -------------------------------------------------------------------------------------------

    def received(self, data: memoryview) -> None:
        self.received_bytes += len(data)
        try:
            self._responses.feed(data)
        except (BrokenStream, WireError) as error:
            self.ended_because(f"Kafka sent a response that cannot be read: {error}")
            return
        if not self._responses.is_inside and self._topics_changed:
            self._topics_changed = False
            self._env.on_topics_changed()
        if not self.is_outstanding:
            self._user.upstream_progressed()

    def ended(self) -> None:
        self.ended_because("Kafka has closed the connection" if self.is_outstanding or self.has_unanswered else None)

    def drained(self) -> None:
        self._user.upstream_progressed()

    def lost(self, reason: str) -> None:
        self.ended_because(f"the connection to Kafka broke: {reason}")

    def ended_because(self, reason: str | None) -> None:
        """The next request opens another connection, if the user allows that."""
        self._drop(reason or "Kafka has closed the connection")
        self._responses = FrameSplitter(self)
        self.lost_unanswered, self.has_unanswered = self.has_unanswered, False
        if not self._closed:
            self._user.upstream_ended(reason)

    # -- responses -----------------------------------------------------------------------------------------------------

    def frame_begins(self, data: memoryview, position: int, end: int, size: int) -> Verdict | Replace:
        if not self.expected:
            raise BrokenStream(f"{size} bytes, but no request is waiting for a response")
        expected = self.expected[0]
        if expected.correlation_id is not None:
            if size < 4:
                raise BrokenStream(f"a response of {size} bytes")
            (answered,) = _correlation_id(data, position)
            if answered != expected.correlation_id:
                raise BrokenStream(f"correlation id {answered} instead of {expected.correlation_id}")
        verdict: Verdict | Replace = PASS
        if expected.take is not None:
            if size > MAX_COLLECTED_BYTES:
                raise BrokenStream(f"a response of {size} bytes; at most {MAX_COLLECTED_BYTES} can be rewritten")
            self._collected = expected
            verdict = COLLECT
        elif expected.begin is not None:
            replaced = expected.begin(data[position:end], size)
            if replaced is None:
                return MORE
            verdict = replaced
        self._topics_changed |= expected.changes_topics
        self.expected.popleft()
        return verdict

    def reserve(self, _size: int, _count: int) -> bool:
        return True

    def pass_on(self, data: memoryview | bytes) -> None:
        self._user.respond(data)

    def frame_collected(self, frame: bytes) -> bool:
        expected, self._collected = self._collected, None
        take: Callable[[bytes], bytes] | asyncio.Future[bytes] | None = expected.take if expected else None
        if isinstance(take, asyncio.Future):
            if not take.done():
                take.set_result(frame)
        elif take is not None:
            self._user.respond(take(frame))
        return not self._closed
