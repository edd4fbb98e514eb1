"""The headers of a connection's requests. Clients repeat them, so everything but the correlation id is parsed once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from holdfast.broker.api.registry import Handler
from holdfast.broker.api.replies import Disconnect
from holdfast.broker.api.request import ClientSession, RequestContext
from holdfast.broker.network.environment import ConnectionEnvironment
from holdfast.broker.util.slices import Work
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.apis.heartbeat import HEARTBEAT
from holdfast.wire.codegen import Decoder
from holdfast.wire.headers import decode_request_header
from holdfast.wire.message import Api, decoder, sliced_decoder

Frame = bytes | bytearray

REPEATED: Final = (HEARTBEAT,)
"""APIs whose requests a client repeats unchanged for hours, and whose handlers do not modify the request."""

MAX_KEPT: Final = 16
"""Headers cached for one connection. A client uses a few APIs, each in one version."""
MAX_KEPT_BYTES: Final = 256
"""The maximum size of a cached header or request. A client id may be as long as a request."""

REST: Final = 8
"""Where a header continues after its API key, version and correlation id."""

request_start = Struct(">ii").unpack_from
"""(API key and version as one number, correlation id) of a request."""

_reply_start = Struct(">ii").pack
_reply_start_flexible = Struct(">iix").pack  # and no tagged fields


@dataclass(slots=True, eq=False)
class RequestHeader:
    """The header of all requests that repeat it, and how they are served."""

    api: Api
    function: Callable[..., Any]
    """The handler's."""
    context: RequestContext
    rest: bytes
    """The client id and the tagged fields, as they were sent."""
    position: int
    """Where the message begins, after `rest`."""
    decode: Decoder
    reply_start: Callable[[int, int], bytes]
    """Packs the length of a reply and its header."""
    reply_header_bytes: int
    is_repeated: bool
    """Whether clients repeat the whole request."""
    message: Frame | None = None
    """The last one with this header, if it is short and clients repeat it."""
    request: Any = None
    """The same, decoded."""

    def handle_in_slices(self, services: object, frame: Frame) -> Work[Any]:
        """Serves a request that may have thousands of elements."""
        request, _ = yield from sliced_decoder(self.api.request, self.context.api_version)(frame, self.position)
        answer = self.function(services, request, self.context)
        return (yield from answer) if isinstance(answer, Generator) else answer


class RequestHeaders:
    """The headers of one connection."""

    __slots__ = ("_env", "_session", "handlers", "known")

    def __init__(self, env: ConnectionEnvironment, session: ClientSession, handlers: Mapping[int, Handler]) -> None:
        self._env = env
        self._session = session
        self.handlers = handlers
        self.known: dict[int, RequestHeader] = {}
        """By API key and version. The client id of a request may differ."""

    def switch_handlers(self, handlers: Mapping[int, Handler]) -> None:
        """From now on, these handlers serve the requests, including those with a cached header."""
        self.handlers = handlers
        self.known.clear()

    def read(self, frame: Frame) -> RequestHeader:
        """The header of a request, which is cached. Raises if it is malformed or the API is not supported."""
        api_key, version, _, client_id, position = decode_request_header(frame)
        handler = self.handlers.get(api_key)
        if handler is None:
            raise self._env.not_served(api_key)
        lowest, highest = handler.served
        if not lowest <= version <= highest:
            if handler.api is not API_VERSIONS:
                raise Disconnect(f"{handler.api.name} version {version}; served are {lowest} to {highest}")
            handler, version = self._env.unsupported_api_versions, 0
        # KIP-511: the ApiVersions response header has no tags, so that any client can read it.
        is_flexible = version >= handler.api.flexible and handler.api is not API_VERSIONS
        header = RequestHeader(
            handler.api,
            handler.function,
            RequestContext(self._session, version, client_id),
            bytes(frame[REST:position]),
            position,
            decoder(handler.api.request, version),
            _reply_start_flexible if is_flexible else _reply_start,
            5 if is_flexible else 4,
            handler.api in REPEATED,
        )
        if position <= MAX_KEPT_BYTES:
            if len(self.known) >= MAX_KEPT:
                self.known.clear()
            self.known[request_start(frame)[0]] = header
        return header
