"""Encoding replies that are too large to be encoded in one step."""

from __future__ import annotations

from typing import Any, Final

from holdfast.broker.api.replies import EncodedParts
from holdfast.broker.util.slices import Work, sliced_clear
from holdfast.log import FileRegion
from holdfast.wire.message import sliced_encoder

PARTS_PER_JOIN: Final = 1024
"""The number of pieces of a large reply that are joined at a time."""


def has_elements(response: Any) -> bool:
    """Whether the response contains a list that is not empty. Any other response is too short to be encoded in
    slices."""
    for name in response.__slots__:
        things = getattr(response, name)
        if type(things) is list and things:
            return True
    return False


def encode_in_slices(response: Any, version: int) -> Work[EncodedParts]:
    """The response in as few pieces as possible. Records that are still in their files remain separate pieces."""
    parts: list[Any] = []
    joined: list[Any] = [b""]
    size = 0
    for _ in sliced_encoder(type(response), version)(response, parts):
        if len(parts) >= PARTS_PER_JOIN:
            size += _join(parts, joined)
        yield
    size += _join(parts, joined)
    return EncodedParts(joined, size)


def free_response(response: Any) -> Work[None]:
    """Freeing a hundred thousand objects at once would take long."""
    for name in response.__slots__:
        things = getattr(response, name)
        if type(things) is list:
            yield from sliced_clear(things)


def _join(parts: list[Any], joined: list[Any]) -> int:
    """Moves the parts to `joined`, as one if they are all bytes. Returns their size."""
    size = sum(map(len, parts))
    if all(map(_is_bytes, parts)):
        joined.append(b"".join(parts))
    else:
        joined.extend(parts)
    parts.clear()
    return size


def _is_bytes(part: Any) -> bool:
    return type(part) is not FileRegion
