"""Messages made up from their declarations: every field filled, for tests that go through all messages and versions."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import strategies as st

import holdfast.wire.apis  # noqa: F401  # declares the APIs
from holdfast.wire.fields import Spec, specs_of
from holdfast.wire.message import APIS

MESSAGES: Final = [message for api in APIS.values() for message in (api.request, api.response)]
"""Every request and response class."""

CASES: Final = [
    (message, version)
    for message in MESSAGES
    for version in range(message.VERSIONS[0], message.VERSIONS[1] + 1)
]  # fmt: skip
"""Every message in every version that it has."""

FIRST_OF_OURS: Final = 10_000
"""The lowest key and the lowest tag that are Holdfast's own; no other implementation knows them."""

KAFKAS: Final = [(message, version) for message, version in CASES if message.API.key < FIRST_OF_OURS]
"""Of the cases, those that others have too."""

INTEGER_RANGES: Final = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}


def case_id(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else f"v{value}"


def is_nullable(spec: Spec) -> bool:
    return spec.nullable is not None or spec.default is None


def reachable_structs(cls: type[Any]) -> Iterator[type[Any]]:
    """The class and the structs inside it."""
    yield cls
    for _, spec in specs_of(cls):
        inner = struct_inside(spec)
        if inner is not None:
            yield from reachable_structs(inner)


def struct_inside(spec: Spec) -> type[Any] | None:
    return spec.element.struct if spec.element is not None else spec.struct


def default_of(spec: Spec) -> Any:
    return [] if spec.kind == "array" and spec.default is not None else spec.default


# -- by property ------------------------------------------------------------------------------------------------------


def messages(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Messages with a value in every field, whatever the version; `restricted` makes one that a version can carry."""
    return st.builds(cls, *(_values(spec) for _, spec in specs_of(cls)))


def _values(spec: Spec) -> st.SearchStrategy[Any]:
    values = _required_values(spec)
    return st.none() | values if is_nullable(spec) else values


def _required_values(spec: Spec) -> st.SearchStrategy[Any]:
    if spec.kind in INTEGER_RANGES:
        return st.integers(*INTEGER_RANGES[spec.kind])
    if spec.kind == "array":
        assert spec.element is not None
        return st.lists(_required_values(spec.element), max_size=3)
    if spec.kind == "struct":
        assert spec.struct is not None
        return messages(spec.struct)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=20),
        "bytes": st.binary(max_size=20),
        "records": st.binary(max_size=20),
    }
    return simple[spec.kind]


def restricted(value: Any, version: int) -> Any:
    """The same message with the fields that the version lacks, or cannot carry as null, at their defaults."""
    changes = {}
    for name, spec in specs_of(type(value)):
        field = getattr(value, name)
        if not spec.present(version):
            changes[name] = default_of(spec)
        elif field is None:
            # A tagged struct that is absent is not on the wire at all, so no version needs to allow null for it.
            keeps_null = spec.nullable_at(version) or spec.kind == "struct"
            changes[name] = None if keeps_null else _some_value(spec)
        elif struct_inside(spec) is not None:
            is_list = spec.kind == "array"
            changes[name] = [restricted(item, version) for item in field] if is_list else restricted(field, version)
    return dataclasses.replace(value, **changes)


def _some_value(spec: Spec) -> Any:
    return {"array": [], "string": "", "bytes": b"", "records": b""}[spec.kind]


# -- by seed ----------------------------------------------------------------------------------------------------------


def random_message(cls: type[Any], version: int, rng: random.Random) -> Any:
    """A message that the version can carry, with values that other implementations take too.

    They turn error codes into an enumeration and times into Python's dates and durations, so those stay small, and they
    do not write a tagged struct that consists of defaults, so there is none. Our own tagged fields stay out.
    """
    return cls(*(_random_field(name, spec, version, rng) for name, spec in specs_of(cls)))


def _random_field(name: str, spec: Spec, version: int, rng: random.Random) -> Any:
    if not spec.present(version) or (spec.tag is not None and rng.random() < 0.3):
        return default_of(spec)
    if spec.tag is not None and spec.tag >= FIRST_OF_OURS:
        return default_of(spec)
    if spec.nullable_at(version) and rng.random() < 0.25:
        return None
    if name == "error_code" or name.endswith("_error_code"):
        return rng.choice((0, 3, 16, 25, 27, 79))
    if name.endswith("_ms") or "timestamp" in name:
        return rng.randrange(1 << 31)
    return _random_value(spec, version, rng)


def _random_value(spec: Spec, version: int, rng: random.Random) -> Any:
    if spec.kind in INTEGER_RANGES:
        return rng.randint(*(INTEGER_RANGES[spec.kind] if rng.random() < 0.5 else (0, 100)))
    if spec.kind == "array":
        assert spec.element is not None
        return [_random_value(spec.element, version, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    if spec.kind == "struct":
        assert spec.struct is not None
        return random_message(spec.struct, version, rng)
    if spec.kind == "string":
        return "".join(rng.choices("abcdefgh-.é漢😀", k=rng.choice((0, 1, 8, 130))))
    if spec.kind == "bool":
        return rng.random() < 0.5
    if spec.kind == "float64":
        return rng.random()
    return rng.randbytes(16 if spec.kind == "uuid" else rng.choice((0, 1, 20, 130)))
