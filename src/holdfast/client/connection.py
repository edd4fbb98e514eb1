"""One connection to one broker. Responses are matched to requests by correlation id.

One thread uses a connection: calls of `connect`, `send`, `receive` and `ask` wait for one another. Any thread may call
`wake` and `close` at any time. `wake` makes a `receive` return None at once, and `close` makes any call in progress
raise `ConnectionLost` at once. Deadlines are times of the client's clock.

A broker answers the requests of one connection in order. Requests after a JoinGroup therefore wait until the join phase
is complete, so a JoinGroup should have a separate connection. Wait for its response with repeated short calls of
`receive`.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
from collections import deque
from collections.abc import Iterator
from mmap import mmap
from struct import Struct
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.addresses import Address
from holdfast.client.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedVersion,
    error_code,
)
from holdfast.client.runtime import Runtime
from holdfast.client.security import Security
from holdfast.client.transport import Waker
from holdfast.version import VERSION
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from holdfast.wire.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.headers import decode_response, encode_request
from holdfast.wire.message import Api

REQUEST_TIMEOUT_S: Final = 30.0
MAX_RESPONSE_BYTES: Final = 100_000_000
"""librdkafka's `receive.message.max.bytes`. A greater length means that the server does not speak Kafka's protocol."""

_SOFTWARE_NAME: Final = "holdfast"
_SOFTWARE_VERSION: Final = re.sub(r"[^A-Za-z0-9.-]", "-", VERSION)  # Kafka rejects other characters (KIP-511)
_REAUTHENTICATION_WINDOW: Final = (0.85, 0.95)
"""The part of a session's lifetime in which the client reauthenticates (KIP-368): before its end, and not all clients
at once."""
_TLS_ALERT: Final = 0x15
_LARGE_BYTES: Final = 64 * 1024
"""If more bytes than this of a response are missing, it is received into a buffer of its size."""
_MAPPED_BYTES: Final = 4 * 1024 * 1024

_length = Struct(">i").unpack_from
_refusal = Struct(">ih").unpack_from  # correlation id, error code


class _LargeFrame:
    """A response that is received into its final buffer, so that its records are not copied."""

    def __init__(self, size: int, received: bytearray) -> None:
        """`received` contains the length and the first bytes."""
        # The kernel allocates the pages of a mapping when they are written, so a large length from a hostile server
        # costs nothing.
        view = memoryview(bytearray(size) if size < _MAPPED_BYTES else mmap(-1, size))
        begun = len(received) - 4
        view[:begun] = received[4:]
        self.whole: Final = view.toreadonly()
        self.left = view[begun:]


class Connection:
    """Call `connect` first. After any failure the connection is closed, and a new one is needed."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        runtime: Runtime,
        client_id: str | None = "holdfast",
        security: Security | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        waker: Waker | None = None,
        family: int = socket.AF_UNSPEC,
    ) -> None:
        self.address: Final = Address(host, port)
        self._client_id = client_id
        self._security = security or Security()
        self._request_timeout_s = request_timeout_s
        self._max_response_bytes = max_response_bytes
        self._clock = runtime.clock
        self._waker = waker or Waker(runtime.clock)
        self._transport = runtime.open_transport(self.address, self._waker, family, runtime.clock)
        self._lock = threading.RLock()
        self._buffer = bytearray()
        self._large: _LargeFrame | None = None
        self._correlation_id = 0
        self._in_flight: dict[int, tuple[Api, int]] = {}
        self._received: deque[tuple[int, Any]] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._ready = False
        self._served = False
        self._reauthenticate_at: float | None = None

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._transport.closing

    def fileno(self) -> int:
        """For `poll`, in a thread that waits for several connections at once; -1 if closed. See also `pending`."""
        return self._transport.fileno()

    @property
    def pending(self) -> bool:
        """Whether bytes have been read that `poll` does not see. If so, call `receive` before `poll`."""
        buffer = self._buffer
        framed = len(buffer) >= 4 and len(buffer) >= 4 + _length(buffer)[0]
        return framed or bool(self._received) or self._transport.pending

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._in_flight)

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The version range of every API key that the broker advertises."""
        return dict(self._versions)

    def supports(self, api: Api, version: int | None = None) -> bool:
        """Whether both sides support the API, in this version or in any."""
        common = self._common(api)
        return common is not None and (version is None or common[0] <= version <= common[1])

    def version_of(self, api: Api, highest: int | None = None) -> int:
        """The highest version that both sides support, up to `highest`. Raises UnsupportedVersion if there is none."""
        common = self._common(api)
        if common is not None and (highest is None or common[0] <= highest):
            return common[1] if highest is None else min(common[1], highest)
        theirs = self._versions.get(api.key)
        has = "does not have it" if theirs is None else f"has versions {theirs[0]} to {theirs[1]}"
        newest = api.versions[1] if highest is None else min(highest, api.versions[1])
        raise UnsupportedVersion(
            f"{api.name} is needed in a version from {api.versions[0]} to {newest}, but the broker at {self.address} "
            f"{has}: it is too old or too new for this Holdfast ({VERSION})",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )

    def _common(self, api: Api) -> tuple[int, int] | None:
        theirs = self._versions.get(api.key)
        if theirs is None:
            return None
        lowest, highest = max(theirs[0], api.versions[0]), min(theirs[1], api.versions[1])
        return (lowest, highest) if lowest <= highest else None

    # -- connecting and closing ----------------------------------------------------------------------------------------

    def connect(self, deadline: float | None = None) -> None:
        """Connects with TCP and TLS, gets the broker's API versions, and authenticates with SASL."""
        deadline = self._deadline(deadline)
        with self._exclusive():
            self._transport.connect(deadline, self._security.tls)
            self._negotiate(deadline)
            self._authenticate(deadline)
            self._ready = True

    def close(self) -> None:
        """Closes the connection and ends calls that wait on it. A second call has no effect."""
        self._transport.closing = True
        if not self._release():
            self._waker.wake()

    def wake(self) -> None:
        """Makes the current `receive`, or else the next one, return None at once."""
        self._waker.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _release(self) -> bool:
        """Closes the socket if no thread uses it. Otherwise that thread closes it when it returns."""
        free = self._lock.acquire(blocking=False)
        if free:
            try:
                self._transport.release()
                self._buffer.clear()
                self._large = None
            finally:
                self._lock.release()
        return free

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except UnsupportedVersion:
            # Nothing was sent.
            if not self._ready:
                self.close()
            raise
        except BaseException:
            # Also for an interrupt: half a frame may have been sent or read.
            self.close()
            raise
        finally:
            if self.closed:
                self._release()

    # -- requests and responses ----------------------------------------------------------------------------------------

    def send(self, message: Any, version: int | None = None) -> int:
        """Sends a request, by default in the highest common version. Returns its correlation id.

        Reauthenticates first if the session is about to end (KIP-368).
        """
        with self._exclusive():
            self._reauthenticate_if_due()
            return self._send(message, version)

    def receive(self, deadline: float) -> tuple[int, Any] | None:
        """The next response with its correlation id. None if none has arrived by the deadline, or if `wake` was called.

        If the deadline has passed, returns a response that has arrived, without waiting.
        """
        with self._exclusive():
            return self._received.popleft() if self._received else self._next_response(deadline, wakeable=True)

    def ask(self, message: Any, deadline: float | None = None, version: int | None = None) -> Any:
        """Sends a request and waits for its response. Other responses are kept for `receive`.

        If there is no response by the deadline, closes the connection and raises RequestTimedOut.
        """
        with self._exclusive():
            self._reauthenticate_if_due()
            return self._ask(message, self._deadline(deadline), version)

    def _deadline(self, deadline: float | None) -> float:
        return self._clock.now() + self._request_timeout_s if deadline is None else deadline

    def _send(self, message: Any, version: int | None) -> int:
        api: Api = message.API
        if version is None:
            version = self.version_of(api)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            frame = encode_request(message, version, self._correlation_id, self._client_id)
        except WireError as failure:
            raise UnsupportedVersion(
                f"{api.name} v{version}, as spoken with {self.address}, cannot carry the request: {failure}",
                code=ErrorCode.UNSUPPORTED_VERSION,
            ) from failure
        self._in_flight[self._correlation_id] = api, version
        with self._explained():
            self._transport.write(frame, self._clock.now() + self._request_timeout_s)
        return self._correlation_id

    def _ask(self, message: Any, deadline: float, version: int | None = None) -> Any:
        began = self._clock.now()
        wanted = self._send(message, version)
        while (answer := self._next_response(deadline, wakeable=False)) is not None:
            if answer[0] == wanted:
                return answer[1]
            self._received.append(answer)
        waited = self._clock.now() - began
        raise RequestTimedOut(
            f"{self.address}: no answer to {message.API.name} within {waited:.1f} s{self._listener_hint}"
        )

    def _next_response(self, deadline: float, *, wakeable: bool) -> tuple[int, Any] | None:
        frame = self._next_frame(deadline, wakeable=wakeable)
        if frame is None:
            return None
        (correlation_id,) = _length(frame)
        asked = self._in_flight.pop(correlation_id, None)
        if asked is None:
            raise self._protocol_error(f"an answer to correlation id {correlation_id}, which nobody asked")
        api, version = asked
        if api is API_VERSIONS and len(frame) >= 6 and _refusal(frame)[1] == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # the rejection of a version has the body of v0 and may contain only the range (KIP-511)
        try:
            answer = decode_response(api, version, frame)
        except WireError as failure:
            raise self._protocol_error(f"an answer that is not {api.name} v{version}: {failure}") from failure
        self._served = self._served or self._ready
        return answer

    def _next_frame(self, deadline: float, *, wakeable: bool) -> bytes | memoryview | None:
        buffer = self._buffer
        wanted = 4
        while self._large is None:
            if len(buffer) >= 4:
                (size,) = _length(buffer)
                if not 4 <= size <= self._max_response_bytes:
                    raise self._protocol_error(self._unexpected_frame(size))
                wanted = 4 + size
            if len(buffer) >= wanted > 4:
                frame = bytes(memoryview(buffer)[4:wanted])
                del buffer[:wanted]
                return frame
            if wanted - len(buffer) > _LARGE_BYTES:
                self._large = _LargeFrame(wanted - 4, buffer)
                buffer.clear()
                break
            with self._explained():
                data = self._transport.read(deadline, wakeable=wakeable)
            if data is None:
                return None
            buffer += data
        return self._rest_of_large(self._large, deadline, wakeable)

    def _rest_of_large(self, frame: _LargeFrame, deadline: float, wakeable: bool) -> memoryview | None:
        while frame.left:
            with self._explained():
                received = self._transport.read_into(frame.left, deadline, wakeable=wakeable)
            if not received:
                return None
            frame.left = frame.left[received:]
        self._large = None
        return frame.whole

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ConnectionLost as failure:
            raise self._explain_loss(failure) from failure

    # -- error messages ------------------------------------------------------------------------------------------------

    @property
    def _listener_hint(self) -> str:
        """A hint for the error message if the server has not yet answered like a broker."""
        if self._versions:
            return ""
        wanting = ", and does it want a client certificate" if self._security.tls is not None else ""
        return f"; is this a Kafka listener for {self._security.protocol}{wanting}?"

    def _explain_loss(self, failure: ConnectionLost) -> ConnectionLost:
        """The same error with an explanation: which request was not answered, and what the listener may expect."""
        said = str(failure)
        if self._in_flight:
            names = ", ".join(sorted({api.name for api, _ in self._in_flight.values()}))
            said += f" before it answered {names}"
        if not self.closed:
            said += self._listener_hint
            if self._ready and not self._served and self._security.sasl is None:
                said += "; a listener that wants SASL does that: see security.protocol"
        return ConnectionLost(said, retriable=failure.retriable)

    def _protocol_error(self, what: str) -> ConnectionLost:
        return ConnectionLost(f"{self.address}: the broker sent {what}")

    def _unexpected_frame(self, size: int) -> str:
        start = bytes(self._buffer[:16])
        if start[0] == _TLS_ALERT and self._security.tls is None:
            return f"TLS, but security.protocol is {self._security.protocol}: set it to SSL or SASL_SSL"
        return (
            f"a length of {size} bytes, and receive.message.max.bytes is {self._max_response_bytes}; "
            f"its bytes begin with {start!r}{self._listener_hint}"
        )

    # -- versions ------------------------------------------------------------------------------------------------------

    def _negotiate(self, deadline: float) -> None:
        """Sends ApiVersions in our highest version. If the broker does not support it, sends it in a version that the
        broker names, or 0."""
        request = ApiVersionsRequest(_SOFTWARE_NAME, _SOFTWARE_VERSION)
        lowest, highest = API_VERSIONS.versions
        response: ApiVersionsResponse = self._ask(request, deadline, highest)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            own = [one for one in response.api_keys if one.api_key == API_VERSIONS.key]
            version = min(own[0].max_version, highest) if own else lowest
            response = self._ask(request, deadline, max(version, lowest))
        if response.error_code:
            code = error_code(response.error_code)
            raise ConnectionFailed(f"{self.address}: ApiVersions is answered with {code.name}", code=code)
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}

    # -- SASL ----------------------------------------------------------------------------------------------------------

    def _reauthenticate_if_due(self) -> None:
        if self._reauthenticate_at is not None and self._clock.now() >= self._reauthenticate_at:
            self._authenticate(self._deadline(None))

    def _authenticate(self, deadline: float) -> None:
        sasl = self._security.sasl
        if sasl is None:
            return
        try:
            exchange = sasl.begin()
            token = next(exchange)
            self._choose_mechanism(sasl.mechanism, deadline)
            with contextlib.suppress(StopIteration):
                while True:
                    response: SaslAuthenticateResponse = self._ask(SaslAuthenticateRequest(token), deadline)
                    if response.error_code:
                        raise self._not_authenticated(sasl.mechanism, response)
                    lifetime_ms = response.session_lifetime_ms
                    token = exchange.send(response.auth_bytes)
        except AuthenticationFailed as failure:
            raise self._with_address(failure) from failure
        self._reauthenticate_at = None
        if lifetime_ms > 0:
            self._reauthenticate_at = self._clock.now() + lifetime_ms / 1000 * random.uniform(*_REAUTHENTICATION_WINDOW)

    def _choose_mechanism(self, mechanism: str, deadline: float) -> None:
        version = self.version_of(SASL_HANDSHAKE)
        if version < 1:
            raise UnsupportedVersion(
                f"the broker at {self.address} is older than Kafka 1.0, whose way to do SASL is needed",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        response: SaslHandshakeResponse = self._ask(SaslHandshakeRequest(mechanism), deadline)
        if not response.error_code:
            return
        code = error_code(response.error_code)
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            without = "SSL" if self._security.tls is not None else "PLAINTEXT"
            why = f"this listener has no SASL: set security.protocol to {without}, or use the port of one that has"
        elif code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            why = f"the broker takes {', '.join(response.mechanisms) or 'none'}: set sasl.mechanism to one of them"
        else:
            why = "SaslHandshake was refused"
        raise AuthenticationFailed(f"SASL {mechanism} cannot be used ({code.name}): {why}", code=code)

    def _not_authenticated(self, mechanism: str, response: SaslAuthenticateResponse) -> AuthenticationFailed:
        code = error_code(response.error_code)
        return AuthenticationFailed(
            f"SASL {mechanism} failed ({code.name}): {response.error_message or 'without a reason'}", code=code
        )

    def _with_address(self, failure: AuthenticationFailed) -> AuthenticationFailed:
        said = str(failure)
        if said.startswith(str(self.address)):
            return failure
        return AuthenticationFailed(
            f"{self.address}: {said}", code=failure.code, retriable=failure.retriable, fatal=failure.fatal
        )
