"""Decodes responses. The decoding of a large one, such as the Metadata of all topics, does not block the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from struct import Struct
from typing import Any, Final, TypeAlias

from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.headers import decode_response
from holdfast.wire.message import Api, sliced_decoder

LARGE_BYTES: Final = 64 * 1024
_SLICE_S: Final = 0.002
"""How long the decoding runs before the event loop does something else."""

Decoding: TypeAlias = Generator[None, None, tuple[Any, int]]
"""Yields whenever it can pause, and returns the message and the position after it."""

_correlation_id = Struct(">i").unpack_from
_refusal = Struct(">ih").unpack_from  # correlation id, error code


def correlation_id_of(frame: memoryview) -> int:
    (found,) = _correlation_id(frame)
    return found  # type: ignore[no-any-return]  # struct has no types


def decode_small(api: Api, version: int, frame: memoryview) -> Any:
    """The response in a frame. Raises WireError."""
    if api is API_VERSIONS and len(frame) >= 6 and _refusal(frame)[1] == ErrorCode.UNSUPPORTED_VERSION:
        version = 0  # the rejection of a version has the body of v0 and may contain only the range (KIP-511)
    _, response = decode_response(api, version, frame)
    return response


def decoding_of_large(api: Api, version: int, frame: memoryview) -> Decoding | None:
    """The work for `decode_in_slices`; None if `decode_small` is good enough."""
    if len(frame) <= LARGE_BYTES:
        return None
    position = 4
    if version >= api.flexible and api is not API_VERSIONS:
        if frame[position] != 0:  # tagged fields, of which Kafka has defined none
            return None
        position += 1
    return sliced_decoder(api.response, version)(frame, position)


async def decode_in_slices(work: Decoding) -> Any:
    """The response. Raises WireError."""
    try:
        until = time.monotonic() + _SLICE_S
        while True:
            next(work)
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + _SLICE_S
    except StopIteration as done:
        return done.value[0]
