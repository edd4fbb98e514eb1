"""One connection to one broker: requests out, answers in, matched by correlation id.

One thread drives a connection: `connect`, `send`, `receive` and `ask` wait for one another. `wake` and `close` may be
called by any thread at any time: `wake` makes a `receive` return None, `close` makes whatever is under way raise
`ConnectionLost`, both at once. Deadlines are points of `time.monotonic()`.

A broker answers the requests of one connection in order. What follows a JoinGroup therefore waits until the group is
complete: such a request should have a connection of its own, and be awaited in slices by `receive`.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
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
from holdfast.client.security import Security
from holdfast.client.transport import Transport, Waker
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
"""librdkafka's `receive.message.max.bytes`. A length beyond it is taken for the bytes of something that is no Kafka."""

_SOFTWARE_NAME: Final = "holdfast"
_SOFTWARE_VERSION: Final = re.sub(r"[^A-Za-z0-9.-]", "-", VERSION)  # Kafka refuses other characters (KIP-511)
_REAUTHENTICATE: Final = (0.85, 0.95)
"""In this part of a session's life we authenticate again (KIP-368): before its end, and not all clients at once."""
_TLS_ALERT: Final = 0x15

_length = Struct(">i").unpack_from
_refusal = Struct(">ih").unpack_from  # correlation id, error code


class Connection:
    """`connect`, then ask. Once anything has failed it is closed, and a new one is needed."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
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
        self._waker = waker or Waker()
        self._transport = Transport(self.address, self._waker, family)
        self._driving = threading.RLock()
        self._buffer = bytearray()
        self._correlation_id = 0
        self._in_flight: dict[int, tuple[Api, int]] = {}
        self._arrived: deque[tuple[int, Any]] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._ready = False
        self._served = False
        self._reauthenticate_at: float | None = None

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._transport.closing

    def fileno(self) -> int:
        """For `poll`, by a thread that waits on several connections at once; -1 when closed. See `pending`, too."""
        return self._transport.fileno()

    @property
    def pending(self) -> bool:
        """Whether bytes were read already that `poll` does not see: then `receive` should be called before it."""
        buffer = self._buffer
        framed = len(buffer) >= 4 and len(buffer) >= 4 + _length(buffer)[0]
        return framed or bool(self._arrived) or self._transport.pending

    @property
    def in_flight(self) -> int:
        """How many requests are not answered yet."""
        return len(self._in_flight)

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The version range of every API key that the broker advertises."""
        return dict(self._versions)

    def supports(self, api: Api, version: int | None = None) -> bool:
        """Whether both sides speak the API, in this version or in any."""
        common = self._common(api)
        return common is not None and (version is None or common[0] <= version <= common[1])

    def version_of(self, api: Api, highest: int | None = None) -> int:
        """The highest version that both sides speak, up to `highest`. Raises UnsupportedVersion if there is none."""
        common = self._common(api)
        if common is not None and (highest is None or common[0] <= highest):
            return common[1] if highest is None else min(common[1], highest)
        theirs = self._versions.get(api.key)
        has = "does not have it" if theirs is None else f"has versions {theirs[0]} to {theirs[1]}"
        most = api.versions[1] if highest is None else min(highest, api.versions[1])
        raise UnsupportedVersion(
            f"{api.name} is needed in a version from {api.versions[0]} to {most}, but the broker at {self.address} "
            f"{has}: it is too old or too new for this Holdfast ({VERSION})",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )

    def _common(self, api: Api) -> tuple[int, int] | None:
        theirs = self._versions.get(api.key)
        if theirs is None:
            return None
        lowest, highest = max(theirs[0], api.versions[0]), min(theirs[1], api.versions[1])
        return (lowest, highest) if lowest <= highest else None

    # -- coming up and going down --------------------------------------------------------------------------------------

    def connect(self, deadline: float | None = None) -> None:
        """TCP, TLS, the broker's versions, SASL: after it, requests may be sent."""
        deadline = self._deadline(deadline)
        with self._driven():
            self._transport.connect(deadline, self._security.tls)
            self._negotiate(deadline)
            self._authenticate(deadline)
            self._ready = True

    def close(self) -> None:
        """Ends the connection and whatever waits on it. Does nothing the second time."""
        self._transport.closing = True
        if not self._release():
            self._waker.wake()

    def wake(self) -> None:
        """Makes a `receive` that waits, or else the next one, return None at once."""
        self._waker.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _release(self) -> bool:
        """Gives the socket back if no thread is inside; else that thread does it on its way out."""
        free = self._driving.acquire(blocking=False)
        if free:
            try:
                self._transport.release()
                self._buffer.clear()
            finally:
                self._driving.release()
        return free

    @contextlib.contextmanager
    def _driven(self) -> Iterator[None]:
        try:
            with self._driving:
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

    # -- questions and answers -----------------------------------------------------------------------------------------

    def send(self, message: Any, version: int | None = None) -> int:
        """Sends a request, in the highest common version if none is given; returns its correlation id.

        When the session is about to end (KIP-368), authenticates again first.
        """
        with self._driven():
            self._stay_authenticated()
            return self._send(message, version)

    def receive(self, deadline: float) -> tuple[int, Any] | None:
        """The next answer with its correlation id. None when none has come by the deadline, or `wake` was called.

        A deadline that has passed takes what is there without waiting.
        """
        with self._driven():
            return self._arrived.popleft() if self._arrived else self._next_response(deadline, wakeable=True)

    def ask(self, message: Any, deadline: float | None = None, version: int | None = None) -> Any:
        """Sends a request and waits for its answer; others that come meanwhile are kept for `receive`.

        Without an answer by the deadline the connection is closed, and RequestTimedOut raised.
        """
        with self._driven():
            self._stay_authenticated()
            return self._ask(message, self._deadline(deadline), version)

    def _deadline(self, deadline: float | None) -> float:
        return time.monotonic() + self._request_timeout_s if deadline is None else deadline

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
        try:
            self._transport.write(frame, time.monotonic() + self._request_timeout_s)
        except ConnectionLost as failure:
            raise self._interrupted(failure) from failure
        return self._correlation_id

    def _ask(self, message: Any, deadline: float, version: int | None = None) -> Any:
        began = time.monotonic()
        wanted = self._send(message, version)
        while (answer := self._next_response(deadline, wakeable=False)) is not None:
            if answer[0] == wanted:
                return answer[1]
            self._arrived.append(answer)
        waited = time.monotonic() - began
        raise RequestTimedOut(f"{self.address}: no answer to {message.API.name} within {waited:.1f} s{self._doubt}")

    def _next_response(self, deadline: float, *, wakeable: bool) -> tuple[int, Any] | None:
        frame = self._next_frame(deadline, wakeable=wakeable)
        if frame is None:
            return None
        (correlation_id,) = _length(frame)
        asked = self._in_flight.pop(correlation_id, None)
        if asked is None:
            raise self._nonsense(f"an answer to correlation id {correlation_id}, which nobody asked")
        api, version = asked
        if api is API_VERSIONS and len(frame) >= 6 and _refusal(frame)[1] == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # a refusal of the version has the body of v0: its range may be all that is in it (KIP-511)
        try:
            answer = decode_response(api, version, frame)
        except WireError as failure:
            raise self._nonsense(f"an answer that is not {api.name} v{version}: {failure}") from failure
        self._served = self._served or self._ready
        return answer

    def _next_frame(self, deadline: float, *, wakeable: bool) -> bytes | None:
        buffer = self._buffer
        wanted = 4
        while True:
            if len(buffer) >= 4:
                (size,) = _length(buffer)
                if not 4 <= size <= self._max_response_bytes:
                    raise self._nonsense(self._alien(size))
                wanted = 4 + size
            if len(buffer) >= wanted > 4:
                frame = bytes(memoryview(buffer)[4:wanted])
                del buffer[:wanted]
                return frame
            try:
                data = self._transport.read(deadline, wakeable=wakeable)
            except ConnectionLost as failure:
                raise self._interrupted(failure) from failure
            if data is None:
                return None
            buffer += data

    # -- what is said when it ends -------------------------------------------------------------------------------------

    @property
    def _doubt(self) -> str:
        """What to think of a server that has not shown yet that it is a broker."""
        if self._versions:
            return ""
        wanting = ", and does it want a client certificate" if self._security.tls is not None else ""
        return f"; is this a Kafka listener for {self._security.protocol}{wanting}?"

    def _interrupted(self, failure: ConnectionLost) -> ConnectionLost:
        """The same with what it means: what was not answered, and what the listener may have wanted."""
        said = str(failure)
        if self._in_flight:
            names = ", ".join(sorted({api.name for api, _ in self._in_flight.values()}))
            said += f" before it answered {names}"
        if not self.closed:
            said += self._doubt
            if self._ready and not self._served and self._security.sasl is None:
                said += "; a listener that wants SASL does that: see security.protocol"
        return ConnectionLost(said, retriable=failure.retriable)

    def _nonsense(self, what: str) -> ConnectionLost:
        return ConnectionLost(f"{self.address}: the broker sent {what}")

    def _alien(self, size: int) -> str:
        start = bytes(self._buffer[:16])
        if start[0] == _TLS_ALERT and self._security.tls is None:
            return f"TLS, but security.protocol is {self._security.protocol}: set it to SSL or SASL_SSL"
        return (
            f"a length of {size} bytes, and receive.message.max.bytes is {self._max_response_bytes}; "
            f"its bytes begin with {start!r}{self._doubt}"
        )

    # -- versions ------------------------------------------------------------------------------------------------------

    def _negotiate(self, deadline: float) -> None:
        """ApiVersions in our highest version; if the broker does not know that, in one that it says it knows, or 0."""
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

    def _stay_authenticated(self) -> None:
        if self._reauthenticate_at is not None and time.monotonic() >= self._reauthenticate_at:
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
            raise self._addressed(failure) from failure
        self._reauthenticate_at = None
        if lifetime_ms > 0:
            self._reauthenticate_at = time.monotonic() + lifetime_ms / 1000 * random.uniform(*_REAUTHENTICATE)

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

    def _addressed(self, failure: AuthenticationFailed) -> AuthenticationFailed:
        said = str(failure)
        if said.startswith(str(self.address)):
            return failure
        return AuthenticationFailed(
            f"{self.address}: {said}", code=failure.code, retriable=failure.retriable, fatal=failure.fatal
        )
