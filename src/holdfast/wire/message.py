"""Declares messages, and provides `encode` and `decode`.

    HEARTBEAT = Api(12, "Heartbeat", versions=(0, 4), flexible=4)

    @request(HEARTBEAT)
    class HeartbeatRequest:
        group_id: str = string()
        ...

The codec of a (message, version) is generated when it is first needed (see `codegen`) and kept on the class.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

from holdfast.wire.codegen import (
    Decoder,
    Encoder,
    SlicedDecoder,
    SlicedEncoder,
    make_decoder,
    make_encoder,
    make_sliced_decoder,
    make_sliced_encoder,
)
from holdfast.wire.errors import WireError
from holdfast.wire.fields import LATEST
from holdfast.wire.struct_class import struct_class

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
Records = bytes | bytearray | memoryview
"""Record batches in wire format: a view of their request."""
Part = Buffer | Sized
"""A piece of an encoded message: bytes, or records that the sender reads from their file."""


class Message(Protocol):
    """The attributes that `@message` adds to a class."""

    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE: ClassVar[int]
    encoders: ClassVar[dict[int, Encoder]]
    decoders: ClassVar[dict[int, Decoder]]
    sliced_encoders: ClassVar[dict[int, SlicedEncoder]]
    sliced_decoders: ClassVar[dict[int, SlicedDecoder]]


@dataclass(slots=True)
class Api:
    """One Kafka API: its key, its name, and the versions that our definitions cover."""

    key: int
    name: str
    versions: tuple[int, int]
    flexible: int = LATEST
    request: Any = field(default=None, repr=False)
    response: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.key in APIS:
            raise ValueError(f"API key {self.key} is declared twice: {APIS[self.key].name} and {self.name}")
        APIS[self.key] = self


APIS: dict[int, Api] = {}
"""Every declared API by key. Importing `holdfast.wire.apis` fills it."""


@dataclass_transform()
def struct_type(cls: type[T]) -> type[T]:
    """A nested structure of a message."""
    return struct_class(cls)


class _Codecs(dict[int, Any]):
    """The codecs of one message by version. Each is generated when it is first looked up. After that the lookup is
    cheap, because it is on the path of every request."""

    __slots__ = ("_make", "_message")

    def __init__(self, message: Any, make: Callable[[Any, int, bool], Any]) -> None:
        super().__init__()
        self._message = message
        self._make = make

    def __missing__(self, version: int) -> Any:
        lowest, highest = self._message.VERSIONS
        if not lowest <= version <= highest:
            raise WireError(f"{self._message.__name__} has no version {version}; it has {lowest} to {highest}")
        made = self[version] = self._make(self._message, version, version >= self._message.FLEXIBLE)
        return made


@dataclass_transform()
def message(*, versions: tuple[int, int], flexible: int = LATEST) -> Callable[[type[T]], type[T]]:
    """A message that is neither a request nor a response: headers, records of the group log, embedded protocols."""

    def declare(cls: type[T]) -> type[T]:
        declared: Any = struct_class(cls)
        declared.VERSIONS = versions
        declared.FLEXIBLE = flexible
        declared.encoders = _Codecs(declared, make_encoder)
        declared.decoders = _Codecs(declared, make_decoder)
        declared.sliced_encoders = _Codecs(declared, make_sliced_encoder)
        declared.sliced_decoders = _Codecs(declared, make_sliced_decoder)
        return declared  # type: ignore[no-any-return]  # the same class, with class attributes added

    return declare


@dataclass_transform()
def request(api: Api) -> Callable[[type[T]], type[T]]:
    def declare(cls: type[T]) -> type[T]:
        api.request = message(versions=api.versions, flexible=api.flexible)(cls)
        api.request.API = api
        return api.request  # type: ignore[no-any-return]

    return declare


@dataclass_transform()
def response(api: Api) -> Callable[[type[T]], type[T]]:
    def declare(cls: type[T]) -> type[T]:
        api.response = message(versions=api.versions, flexible=api.flexible)(cls)
        api.response.API = api
        return api.response  # type: ignore[no-any-return]

    return declare


def encoder(cls: Any, version: int) -> Encoder:
    return cls.encoders[version]  # type: ignore[no-any-return]


def decoder(cls: Any, version: int) -> Decoder:
    return cls.decoders[version]  # type: ignore[no-any-return]


def sliced_encoder(cls: Any, version: int) -> SlicedEncoder:
    """`encoder` as a generator, for a message that may be large."""
    return cls.sliced_encoders[version]  # type: ignore[no-any-return]


def sliced_decoder(cls: Any, version: int) -> SlicedDecoder:
    """`decoder` as a generator, for a message that may be large."""
    return cls.sliced_decoders[version]  # type: ignore[no-any-return]


def encode_parts(value: Any, version: int) -> list[Part]:
    """The message as pieces in order; records stay the objects that were put in."""
    parts: list[Part] = []
    encoder(type(value), version)(value, parts)
    return parts


def encode(value: Any, version: int) -> bytes:
    """The message as bytes."""
    parts: list[Any] = []
    encoder(type(value), version)(value, parts)
    return b"".join(parts)


def decode(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> T:
    """The message that starts at `position`. As in Kafka, bytes after it are ignored."""
    value, _ = decoder(cls, version)(buffer, position)
    return value  # type: ignore[no-any-return]
