"""One client's connection: its socket, its connection to Kafka, and how both end."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Any, Final

from holdfast.broker.api.replies import Disconnect
from holdfast.broker.api.request import ListenerInfo
from holdfast.broker.authorization.acls import normalize_host
from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.router.answers import Answers
from holdfast.gateway.router.authentication import Authentication, ReplyAndClose
from holdfast.gateway.router.channel import Channel
from holdfast.gateway.router.environment import RouterEnvironment
from holdfast.gateway.router.frames import BrokenStream
from holdfast.gateway.router.request_stream import Detached, RequestStream
from holdfast.gateway.router.rewriting import replace_addresses
from holdfast.gateway.router.rules import Rule
from holdfast.gateway.router.tls_channel import TlsChannel
from holdfast.gateway.router.upstream import Upstream
from holdfast.wire.errors import WireError
from holdfast.wire.headers import decode_response, encode_request

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "holdfast-gateway"
"""Of the gateway's own requests."""
_FIRST_CORRELATION_ID: Final = 1 << 30
"""Of the same, to distinguish them from the client's in a packet trace."""


class ClientConnection:
    __slots__ = (
        "_answers",
        "_authentication",
        "_channel",
        "_closed",
        "_closes_when_answered",
        "_closes_when_sent",
        "_ended",
        "_env",
        "_is_admitted",
        "_linger",
        "_next_correlation_id",
        "_requests",
        "_upstream",
        "node_id",
        "received_bytes",
        "session",
    )

    def __init__(
        self,
        env: RouterEnvironment,
        rules: dict[int, Rule],
        listener: ListenerInfo,
        node_id: int | None,
        peer: socket.socket,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._env = env
        self.node_id = node_id
        self.session = env.make_session(listener, lambda: None)
        self.session.client_host = _host_of(peer)
        self._channel: Channel = (
            Channel(env.loop, peer, self, env.buffer)
            if tls is None
            else TlsChannel(env.loop, peer, self, env.buffer, tls)
        )
        self._upstream = Upstream(env, node_id, self)
        uses_sasl = env.settings.upstream_uses_sasl
        self._authentication = Authentication(self.session, self._upstream.exchange, is_required=uses_sasl)
        self._answers = Answers(env, self, self._upstream, self._authentication, self._answered)
        self._requests = RequestStream(env, rules, self._upstream, self._authentication, self)
        self._next_correlation_id = _FIRST_CORRELATION_ID
        self._ended = False
        """The client sends nothing more."""
        self._closes_when_answered = False
        self._closes_when_sent = False
        self._linger: asyncio.TimerHandle | None = None
        self._is_admitted = False
        """`GroupRequests` is to be informed of the end."""
        self._closed = False
        self.received_bytes = 0

    def start(self) -> None:
        refusal = self._env.owner.admit(self)
        if refusal is not None:
            self.close(refusal)
            return
        self._is_admitted = True
        self._channel.start()

    # -- the client's channel ------------------------------------------------------------------------------------------

    def received(self, data: memoryview) -> None:
        self.received_bytes += len(data)
        try:
            self._requests.received(data)
        except BrokenStream as error:
            self._close_broken(error)
        else:
            self._update_reading()

    def drained(self) -> None:
        if self._closes_when_sent:
            self.close(None)
            return
        self._upstream.resume()
        self._proceed()

    def ended(self) -> None:
        """A producer with acks=0 may disconnect at once, so what was read still goes to Kafka."""
        self._ended = True
        self._start_linger()
        if self._requests.is_answering and not self._requests.is_held:
            self._finish()  # as in the broker, nobody is left to read the reply
        else:
            self._finish_if_ended()

    def lost(self, reason: str) -> None:
        logger.debug("the connection of %s broke: %s", self.session.client_host, reason)
        if isinstance(self._channel, TlsChannel) and not self._channel.is_established:
            self.close(reason)
            return
        self._upstream.resume()  # its responses have no reader, but Kafka must be able to send them
        self.ended()

    # -- the connection to Kafka ---------------------------------------------------------------------------------------

    def respond(self, data: memoryview | bytes) -> None:
        channel = self._channel
        channel.write(data)
        if channel.unsent:
            self._upstream.pause()

    def upstream_progressed(self) -> None:
        self._proceed()

    def upstream_ended(self, reason: str | None) -> None:
        if self._closed:
            return
        if self._ended:
            self._close_when_sent()
            return
        is_refused = not self._authentication.is_complete or self._upstream.lost_unanswered
        if reason is None and not is_refused:
            # The connection was idle. The client may have requests for the gateway only, such as heartbeats, so it must
            # not be disconnected.
            return
        if self._requests.is_answering and not is_refused:
            return  # its answer may not need Kafka; otherwise it fails, and closes the connection
        if reason is not None:
            host = self.session.client_host
            self._env.log.warning(self.node_id, f"closing the connection of {host}: {reason}")
        # Kafka's last response may still be with the coroutine that reads it.
        self._closes_when_answered = True
        self._start_linger()
        self._close_if_answered()

    async def ask(self, request: Any, version: int) -> Any:
        self._check_attached()
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        frame = encode_request(request, version, correlation_id, CLIENT_ID)
        answered = await self._upstream.exchange(frame, correlation_id)
        _, response = decode_response(request.API, version, answered)
        if not self._env.brokers.is_transparent:
            replace_addresses(response, self._env.brokers)
        return response

    def _check_attached(self) -> None:
        if self._closed:
            raise KafkaUnreachable("the client has disconnected")
        if self._env.settings.upstream_uses_sasl and not self._upstream.is_open:
            raise KafkaUnreachable("Kafka has closed the connection on which the client had authenticated")

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def can_reply(self) -> bool:
        return not self._channel.unsent

    def begin_answer(self, frame: bytes) -> bytes | None:
        try:
            return self._answers.begin(frame)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this one connection's
            self._env.loop.call_soon(self._fail, error)
            return None

    def _answered(self, task: asyncio.Task[bytes]) -> None:
        if self._closed:
            return
        if task.cancelled():
            self.close(None)
        elif (error := task.exception()) is not None:
            self._fail(error)
        else:
            self._requests.answered(task.result())
            self._close_if_answered()
            self._proceed()

    def _fail(self, error: BaseException) -> None:
        """Closes the connection, with one log line: the request is malformed, or its handler failed."""
        if self._closed:
            return
        if isinstance(error, ReplyAndClose):
            self.respond(error.reply)
            logger.warning("closing the connection of %s: %s", self.session.client_host, error)
            self._close_when_sent()
        elif isinstance(error, KafkaUnreachable):
            self._env.log.warning(self.node_id, f"closing the connection of {self.session.client_host}: {error}")
            self.close(None)
        elif isinstance(error, WireError | Disconnect):
            self.close(str(error))
        else:
            logger.error("request of %s failed; closing its connection", self.session.client_host, exc_info=error)
            self.close(None)

    def _proceed(self) -> None:
        if self._closed or self._closes_when_sent:
            return
        try:
            self._requests.proceed()
        except BrokenStream as error:
            self._close_broken(error)
            return
        self._update_reading()
        self._finish_if_ended()

    def _update_reading(self) -> None:
        if self._requests.has_room and not self._upstream.unsent and not self._ended and not self._closes_when_sent:
            self._channel.resume()
        else:
            self._channel.pause()

    # -- the owner's view ----------------------------------------------------------------------------------------------

    @property
    def receiving(self) -> bool:
        return self._requests.is_collecting

    def retry_growth(self) -> None:
        if self._closed or self._closes_when_sent:
            return
        try:
            self._requests.retry_growth()
        except BrokenStream as error:
            self._close_broken(error)
            return
        self._update_reading()
        self._finish_if_ended()

    @property
    def activity(self) -> int:
        return self.received_bytes + self._channel.progress + self._upstream.progress

    @property
    def is_waiting(self) -> bool:
        is_due = self._requests.has_answer_due or self._upstream.is_outstanding
        return is_due and not self._channel.unsent and not self._upstream.unsent

    @property
    def needs_authentication(self) -> bool:
        channel = self._channel
        in_handshake = isinstance(channel, TlsChannel) and not channel.is_established
        return in_handshake or not self._authentication.is_complete

    @property
    def has_reply_in_flight(self) -> bool:
        if self._closed:
            return False
        if self._ended:
            return bool(self._upstream.unsent)
        unsent = self._channel.unsent or self._upstream.unsent
        return bool(unsent) or self._requests.has_answer_due or self._upstream.is_outstanding

    def start_draining(self) -> None:
        """No further request begins; those that have begun are answered."""
        self._requests.is_draining = True

    # -- the end -------------------------------------------------------------------------------------------------------

    def _finish_if_ended(self) -> None:
        if self._ended and not self._requests.has_answer_due and not self._requests.is_held:
            self._finish()

    def _finish(self) -> None:
        """The client is gone. Kafka reads what was sent to it, and then closes the connection."""
        self._answers.cancel()
        self._tell_closed()
        if self._upstream.is_open:
            self._upstream.finish()
        else:
            self.close(None)

    def _close_when_sent(self) -> None:
        """The client gets what was written to it."""
        if not self._channel.unsent:
            self.close(None)
        elif not self._closes_when_sent:
            self._closes_when_sent = True
            self._channel.pause()
            self._answers.cancel()
            self._start_linger()

    def _close_if_answered(self) -> None:
        if self._closes_when_answered and not self._requests.is_answering:
            self._close_when_sent()

    def _start_linger(self) -> None:
        if self._linger is None:
            self._linger = self._env.loop.call_later(self._env.settings.linger_ms / 1000, self.close, None)

    def _close_broken(self, error: BrokenStream) -> None:
        self.close(None if isinstance(error, Detached) else str(error))

    def close(self, reason: str | None) -> None:
        """Closes both connections at once, and logs `reason`."""
        if self._closed:
            return
        self._closed = True
        if reason is not None:
            logger.warning("closing the connection of %s: %s", self.session.client_host, reason)
        if self._linger is not None:
            self._linger.cancel()
        self._answers.cancel()
        self._channel.close()
        self._upstream.close()
        self._tell_closed()
        self._env.memory.forget(self)
        self._env.owner.connection_closed(self)

    evict = close

    def _tell_closed(self) -> None:
        if self._is_admitted:
            self._is_admitted = False
            try:
                self._env.requests.closed(self)
            except Exception:
                logger.exception("the end of the connection of %s", self.session.client_host)


def _host_of(peer: socket.socket) -> str:
    try:
        return normalize_host(peer.getpeername()[0])
    except (OSError, IndexError):
        return "?"
