"""The headers of requests and responses.

A frame is a 4-byte length, a header and a message. Requests have header v1 (key, version, correlation id, client id)
or, in a flexible version, v2, which adds tagged fields. The client id keeps its 2-byte length even there, so that a
broker can read it whether or not it supports the version. Responses have header v0 (correlation id) or v1, which adds
tagged fields. Tagged fields in headers are skipped, because Kafka has defined none.

Headers are on the path of every request, so they are handled by hand-written code rather than by generated code.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any, Final

from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.errors import WireError
from holdfast.wire.message import APIS, Api, Buffer, Part, decode, encoder
from holdfast.wire.varint import decode_uvarint

_REQUEST: Final = Struct(">hhih")  # key, version, correlation id, length of the client id
_FRAMED_REQUEST: Final = Struct(">ihhih")
_INT32: Final = Struct(">i")
_FRAMED_V0: Final = Struct(">ii")
_FRAMED_V1: Final = Struct(">iix")
_FAILURES: Final = (error, IndexError, UnicodeError)


def decode_request_header(buffer: Buffer) -> tuple[int, int, int, str | None, int]:
    """(API key, version, correlation id, client id, position of the message) of a request without its length.

    For an unknown API, the position is after the client id even if tagged fields follow, because the message is not
    read.
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(buffer)
        position = _REQUEST.size
        client_id = None
        if length >= 0:
            stop = position + length
            if stop > len(buffer):
                raise WireError(f"client id of {length} bytes past the end of the request")
            client_id = str(buffer[position:stop], "utf-8")
            position = stop
        elif length != -1:
            raise WireError(f"client id of {length} bytes")
        api = APIS.get(api_key)
        if api is not None and api_version >= api.flexible:
            # Kafka has defined no tagged fields here, so usually there are none.
            position = position + 1 if buffer[position] == 0 else _skip_tags(buffer, position)
    except _FAILURES as failure:
        raise WireError(f"malformed request header: {failure}") from failure
    return api_key, api_version, correlation_id, client_id, position


def encode_request(message: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole frame: length, header and message."""
    api: Api = message.API
    parts: list[Any] = [b""]
    encoder(type(message), version)(message, parts)
    try:
        client = b"" if client_id is None else client_id.encode()
        head = client + b"\x00" if version >= api.flexible else client
        size = _REQUEST.size + len(head) + sum(map(len, parts))
        length = -1 if client_id is None else len(client)
        parts[0] = _FRAMED_REQUEST.pack(size, api.key, version, correlation_id, length) + head
    except _FAILURES as failure:
        raise WireError(f"cannot encode the header of {api.name} v{version}: {failure}") from failure
    return b"".join(parts)


def response_header(correlation_id: int, api_key: int, version: int) -> bytes:
    """The header without the frame's length."""
    packed = _packed_int32(correlation_id)
    return packed + b"\x00" if _response_has_tags(api_key, version) else packed


def encode_response_parts(message: Any, version: int, correlation_id: int) -> list[Part]:
    """A whole frame as pieces in order; records stay the objects that were put in (see `message.encode_parts`)."""
    api: Api = message.API
    parts: list[Any] = [b""]
    encoder(type(message), version)(message, parts)
    head = _FRAMED_V1 if _response_has_tags(api.key, version) else _FRAMED_V0
    try:
        parts[0] = head.pack(sum(map(len, parts)) + head.size - 4, correlation_id)
    except _FAILURES as failure:
        raise WireError(f"cannot encode the header of {api.name} v{version}: {failure}") from failure
    return parts


def decode_response(api: Api, version: int, frame: Buffer) -> tuple[int, Any]:
    """(correlation id, message) of a response without its length."""
    try:
        (correlation_id,) = _INT32.unpack_from(frame)
        position = _INT32.size
        if _response_has_tags(api.key, version):
            position = _skip_tags(frame, position)
    except _FAILURES as failure:
        raise WireError(f"malformed header of a {api.name} v{version} response: {failure}") from failure
    return correlation_id, decode(api.response, version, frame, position)


def _response_has_tags(api_key: int, version: int) -> bool:
    """Never in ApiVersions, because a client must be able to read the response to a version that the broker does not
    support."""
    api = APIS.get(api_key)
    return api is not None and version >= api.flexible and api is not API_VERSIONS


def _skip_tags(buffer: Buffer, position: int) -> int:
    """The position after the tagged fields. Each takes at least two bytes, so the buffer's end bounds the loop."""
    count = buffer[position]
    if count == 0:
        return position + 1
    count, position = decode_uvarint(buffer, position)
    for _ in range(count):
        _, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        position += size
    if position > len(buffer):
        raise WireError("tagged field past the end of the header")
    return position


def _packed_int32(value: int) -> bytes:
    try:
        return _INT32.pack(value)
    except error as failure:
        raise WireError(f"correlation id {value} does not fit 32 bits") from failure
