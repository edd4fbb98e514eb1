"""Target `decoding`: whatever bytes come, a decoder reads them or raises WireError.

The first byte of an input says who decodes the rest. What was read can be written again and reads the same, or we
would take in what we cannot pass on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final

from google_crc32c import value as crc32c

import holdfast.wire.apis  # noqa: F401  # declares the APIs
from holdfast.log.inspection import inspect, run_to_completion
from holdfast.log.record_spans import record_spans, with_records, without_records
from holdfast.wire.batch import CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, batches, parse_header, stamp
from holdfast.wire.compression import decompress
from holdfast.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import decode_record, encode_key, encode_value
from holdfast.wire.headers import decode_request_header, decode_response
from holdfast.wire.message import APIS, decode, encode
from holdfast.wire.records import decode_batch

MAX_OUTPUT: Final = 256 * 1024
"""What compressed records may unpack to. The broker allows more; time grows with that, not with the input."""

_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_UINT16 = struct.Struct(">H")
_RESPONSE = struct.Struct(">hh")


class Kind(IntEnum):
    """Who decodes the rest of an input."""

    REQUEST = 0
    RESPONSE = 1
    SUBSCRIPTION = 2
    ASSIGNMENT = 3
    GROUP_RECORD = 4
    BATCH = 5
    SEALED_BATCH = 6
    COMPRESSED = 7


def run(data: bytes) -> None:
    if data:
        body = data[1:]
        with suppress(WireError):
            DECODERS[Kind(data[0] % len(Kind))](body)


def _request(frame: bytes) -> None:
    key, version, _, _, position = decode_request_header(frame)
    api = APIS.get(key)
    if api is not None:
        _same_again(api.request, version, decode(api.request, version, frame, position))


def _response(body: bytes) -> None:
    """API key, version and a response, header first: its reader knows what it asked for."""
    if len(body) < _RESPONSE.size:
        return
    key, version = _RESPONSE.unpack_from(body)
    api = APIS.get(key)
    if api is not None:
        _, message = decode_response(api, version, body[_RESPONSE.size :])
        _same_again(api.response, version, message)


def _same_again(cls: Any, version: int, message: Any) -> None:
    written = _must(lambda: encode(message, version))
    assert _must(lambda: decode(cls, version, written)) == message, f"{cls.__name__} v{version} reads otherwise again"


def _must(step: Callable[[], Any]) -> Any:
    """What follows a successful decoding has no excuse."""
    try:
        return step()
    except WireError as error:
        raise AssertionError(f"what was read cannot be written and read again: {error}") from error


def _subscription(body: bytes) -> None:
    with suppress(WireError):
        subscribed_topics(body)
    subscription = decode_subscription(body)
    written = _must(lambda: encode_subscription(subscription))
    again = _must(lambda: decode_subscription(written))
    assert encode_subscription(again) == written


def _assignment(body: bytes) -> None:
    assignment = decode_assignment(body)
    written = _must(lambda: encode_assignment(assignment))
    assert encode_assignment(_must(lambda: decode_assignment(written))) == written


def _group_record(body: bytes) -> None:
    """A length, a key and a value; no value if the length's highest bit is set."""
    if len(body) < _UINT16.size:
        return
    (length,) = _UINT16.unpack_from(body)
    end = _UINT16.size + (length & 0x7FFF)
    record = decode_record(body[_UINT16.size : end], None if length & 0x8000 else body[end:])
    if record is not None:
        key, value = record
        written_key = _must(lambda: encode_key(key))
        written = None if value is None else _must(lambda: encode_value(value))
        assert _must(lambda: decode_record(written_key, written))[0] == key


def _sealed_batch(body: bytes) -> None:
    """The batch with the length and the CRC that make it credible, so that what is inside gets looked at."""
    _batch(sealed(body))


def sealed(body: bytes) -> bytes:
    if len(body) < HEADER_SIZE:
        return body
    batch = bytearray(body)
    _INT32.pack_into(batch, 8, len(batch) - LENGTH_OVERHEAD)
    batch[16] = MAGIC
    _UINT32.pack_into(batch, CRC_START - 4, crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


def _batch(body: bytes) -> None:
    """As a client reads it, as a broker takes it in, and as compaction goes over it."""
    with suppress(WireError):
        decode_batch(body, max_decompressed=MAX_OUTPUT)
    for batch in batches(bytearray(body)):
        unpacked = bytes(decompress(batch.header.codec, batch.data[HEADER_SIZE:], MAX_OUTPUT))
        with suppress(WireError):
            run_to_completion(inspect(unpacked, batch.header))
        stamp(batch.data, 7, 0, 1_000)
        header = parse_header(batch.data)
        spans = record_spans(unpacked, header)
        without_records(bytes(batch.data), header)
        if spans:
            with_records(bytes(batch.data), header, unpacked, spans[::2], None)
            with_records(bytes(batch.data), header, unpacked, spans[::2], 1_000)


def _compressed(body: bytes) -> None:
    if body:
        decompress(body[0], body[1:], MAX_OUTPUT)


DECODERS: Final[dict[Kind, Callable[[bytes], None]]] = {
    Kind.REQUEST: _request,
    Kind.RESPONSE: _response,
    Kind.SUBSCRIPTION: _subscription,
    Kind.ASSIGNMENT: _assignment,
    Kind.GROUP_RECORD: _group_record,
    Kind.BATCH: _batch,
    Kind.SEALED_BATCH: _sealed_batch,
    Kind.COMPRESSED: _compressed,
}
