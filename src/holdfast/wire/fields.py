"""Functions that declare the fields of messages, one per Kafka type.

A message is a class whose attributes are declared with these functions, in wire order:

    group_instance_id: str | None = string(since=3, nullable=3, default=None)

`since` and `until` bound the versions in which the field is on the wire, `nullable` is the first version that may carry
null, `tag` makes it a tagged field. If a version lacks a field, encoding a value other than the default is an error,
unless the field is `ignorable`. An ignorable field is silently dropped, as in Kafka.

The functions return `Any` because the result becomes the attribute's default in a dataclass. The type checker uses the
attribute's annotation. A test compares the annotations with the declarations.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

LATEST: Final = 1 << 15
ZERO_UUID: Final = bytes(16)
"""Kafka's value for "no topic id"."""
OPERATIONS_NOT_REQUESTED: Final = -(1 << 31)
"""Kafka's value for authorized operations that were not requested."""

FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
FIXED_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}


@dataclass(frozen=True, slots=True)
class Spec:
    """The encoding of one field, and its versions."""

    kind: str
    since: int = 0
    until: int = LATEST
    nullable: int | None = None
    tag: int | None = None
    ignorable: bool = False
    default: Any = None
    element: Spec | None = None
    struct: type[Any] | None = None

    def present(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_at(self, version: int) -> bool:
        return self.nullable is not None and version >= self.nullable


def _field(spec: Spec) -> Any:
    if spec.kind == "array" and spec.default is not None:
        return dataclasses.field(default_factory=list, metadata={"wire": spec})
    return dataclasses.field(default=spec.default, metadata={"wire": spec})


def _fixed(kind: str, default: Any) -> Any:
    def declare(
        *,
        since: int = 0,
        until: int = LATEST,
        tag: int | None = None,
        ignorable: bool = False,
        default: Any = default,
    ) -> Any:
        return _field(Spec(kind, since, until, tag=tag, ignorable=ignorable, default=default))

    declare.__name__ = kind
    return declare


boolean = _fixed("bool", False)
int8 = _fixed("int8", 0)
int16 = _fixed("int16", 0)
uint16 = _fixed("uint16", 0)
int32 = _fixed("int32", 0)
uint32 = _fixed("uint32", 0)
int64 = _fixed("int64", 0)
float64 = _fixed("float64", 0.0)
uuid = _fixed("uuid", ZERO_UUID)
"""Sixteen raw bytes, because an id is compared and looked up far more often than it is printed."""


def _sized(kind: str, default: Any) -> Any:
    def declare(
        *,
        since: int = 0,
        until: int = LATEST,
        nullable: int | None = None,
        tag: int | None = None,
        ignorable: bool = False,
        default: Any = default,
    ) -> Any:
        return _field(Spec(kind, since, until, nullable, tag, ignorable, default))

    declare.__name__ = kind
    return declare


string = _sized("string", "")
blob = _sized("bytes", b"")
records = _sized("records", None)
"""Record batches: decoded as a view of the input, encoded from bytes or from anything with a length that the
sender knows how to send (a region of a file), so that they are never copied here."""


def array(
    element: type[Any] | Any,
    *,
    since: int = 0,
    until: int = LATEST,
    nullable: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    default: Any = (),
) -> Any:
    """An array of structs (`array(Topic)`) or of primitives (`array(int32())`). `default=None` makes it null."""
    inner = Spec("struct", struct=element) if isinstance(element, type) else element.metadata["wire"]
    spec = Spec("array", since, until, nullable, tag, ignorable, default, element=inner)
    return _field(spec)


def struct(
    cls: type[Any],
    *,
    since: int = 0,
    until: int = LATEST,
    nullable: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A nested struct. Tagged or nullable, it is absent (None) by default."""
    return _field(Spec("struct", since, until, nullable, tag, ignorable, struct=cls))


def specs_of(cls: type[Any]) -> list[tuple[str, Spec]]:
    """The fields of a declared class with their names, in wire order."""
    return [(field.name, field.metadata["wire"]) for field in dataclasses.fields(cls)]
