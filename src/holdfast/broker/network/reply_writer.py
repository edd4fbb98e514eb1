"""Writing replies, without the event loop's transport.

The transport only reads. Replies are written here, on a duplicate of the socket, because neither event loop can send a
file to a socket without copying it through memory, and because a reply that the peer does not read must not pile up in
a transport's buffer (docs/decisions/0001). A reply that cannot be written now waits, and the connection serves no
further request until it is written. A client that never reads therefore costs one reply, or FLUSH_BYTES of short ones.

Replies are sent at the end of the event loop's iteration, after all requests that arrived were served
(docs/decisions/0025). A send to a sleeping client wakes it, which costs the kernel more than the send itself. If each
reply were sent between two reads, a client with many connections would sleep and wake again for each of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.network.byte_stream import ByteSink

logger = logging.getLogger(__name__)

FLUSH_BYTES: Final = 64 * 1024
"""If one connection has more than this to send, it does not wait for the end of the loop's iteration."""

MAX_DUE: Final = 64
"""When this many connections have replies to send, they are sent before the end of the iteration. The first of them has
then waited for as many requests, which is well below a millisecond."""


class ReplyRound:
    """The connections that have replies to send at the end of this iteration."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[ReplyWriter] = []

    def add(self, writer: ReplyWriter) -> None:
        due = self._due
        due.append(writer)
        if len(due) == 1:
            asyncio.get_running_loop().call_soon(self.flush)
        elif len(due) >= MAX_DUE:
            self.flush()

    def flush(self) -> None:
        """Sends all pending replies. Called before the end of the iteration if they are many, or before long work."""
        due, self._due = self._due, []
        for writer in due:
            try:
                writer.flush()
            except Exception:  # the replies of the other connections follow
                logger.exception("sending replies failed")


class ReplyWriter:
    __slots__ = (
        "_loop",
        "_on_drained",
        "_on_failed",
        "_on_progress",
        "_queue",
        "_queued_bytes",
        "_round",
        "_send",
        "_sink",
        "blocked",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sink: ByteSink,
        reply_round: ReplyRound,
        on_drained: Callable[[], None],
        on_failed: Callable[[Exception], None],
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._sink = sink
        self._send = sink.send
        self._round = reply_round
        self._on_drained = on_drained
        self._on_progress = on_progress
        self._on_failed = on_failed
        self._queue: deque[Any] = deque()
        self._queued_bytes = 0
        self.blocked = False
        """The peer has not read all replies."""

    @property
    def has_unsent(self) -> bool:
        """Replies wait for the end of the loop's iteration, or for the peer."""
        return self.blocked or bool(self._queue)

    def send(self, reply: bytes) -> None:
        """Sends a reply at the end of the loop's iteration, together with other replies."""
        queue = self._queue
        is_first = not queue
        queue.append(reply)
        self._queued_bytes += len(reply)
        if self._queued_bytes > FLUSH_BYTES:
            self.flush()
        elif is_first:
            self._round.add(self)

    def send_parts(self, parts: list[Any], size: int) -> None:
        """The same for a reply of `size` bytes in pieces: bytes, and regions of files."""
        is_first = not self._queue
        self._queue.extend(parts)
        self._queued_bytes += size
        if self._queued_bytes > FLUSH_BYTES:
            self.flush()
        elif is_first:
            self._round.add(self)

    def flush(self) -> None:
        """Writes as much as the socket accepts, and continues when it is writable again."""
        queue = self._queue
        if self.blocked or not queue:
            return
        self._queued_bytes = 0
        try:
            if len(queue) == 1 and type(reply := queue[0]) is bytes and reply:
                # The usual case: one short reply. An empty one is from `flush_stream`.
                sent = self._send(reply)
                if sent == len(reply):
                    queue.clear()
                    return
                queue[0] = memoryview(reply)[sent:]
            self._sink.write(queue)
        except BlockingIOError:
            self.blocked = True
            self._loop.add_writer(self._sink.fileno(), self._writable)
        except Exception as error:  # noqa: BLE001  # whatever it is, the replies of others follow
            self._fail(error)

    def flush_stream(self) -> None:
        """Writes the byte stream's own data (TLS: a handshake, an alert, new keys).

        If the socket is not writable, the data waits and is written before the next reply.
        """
        if not self.blocked:
            self._queue.appendleft(b"")
            self.flush()

    def _writable(self) -> None:
        # The peer reads, if slowly, so it is not idle.
        self._on_progress()
        try:
            self._sink.write(self._queue)
        except BlockingIOError:
            return
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this one connection's
            self._fail(error)
            return
        self._remove_writer()
        self._on_drained()

    def _fail(self, error: Exception) -> None:
        self.close()
        self._on_failed(error)

    def _remove_writer(self) -> None:
        if self.blocked:
            self.blocked = False
            self._loop.remove_writer(self._sink.fileno())

    def close(self) -> None:
        """Releases the socket and unsent replies."""
        self._remove_writer()
        self._queue.clear()
        self._sink.close()
