"""The source of a codec under construction, for `codegen`."""

from __future__ import annotations

import struct
from typing import Any, Final

from holdfast.wire.errors import WireError
from holdfast.wire.varint import SMALL_UVARINTS, decode_uvarint, encode_uvarint

READY_MADE: Final = 16
"""Arrays of fewer numbers than this are packed by an existing struct."""


class Source:
    """The lines of a function under construction and the objects that they refer to."""

    def __init__(self, *, sliced: bool = False) -> None:
        self.lines: list[str] = []
        self.sliced = sliced
        self.names: dict[str, Any] = {
            "WireError": WireError,
            "uvarint": decode_uvarint,
            "to_uvarint": encode_uvarint,
            "UV": SMALL_UVARINTS,
        }
        self.indent = 1
        self._counter = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def may_pause(self) -> None:
        """A position in a loop where the function pauses if it is a generator."""
        if self.sliced:
            self.add("yield")

    def fresh(self, stem: str) -> str:
        self._counter += 1
        return f"{stem}{self._counter}"

    def bind(self, stem: str, value: Any) -> str:
        """A global name for `value`; equal names must mean equal values."""
        name = stem
        while name in self.names and self.names[name] is not value:
            name = self.fresh(stem)
        self.names[name] = value
        return name

    def struct_method(self, formats: str, method: str) -> str:
        name = f"{method}_{formats.replace('?', 'z')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + formats), method)
        return name

    def sized_struct_method(self, code: str, method: str, count: str) -> str:
        """The method of a struct of `count` equal items; ready made for few, such as the replicas of a partition."""
        name = f"{method}_some_{code.replace('?', 'z')}"
        if name not in self.names:
            self.names[name] = tuple(getattr(struct.Struct(f">{n}{code}"), method) for n in range(READY_MADE))
            self.names["Struct"] = struct.Struct
        return f"({name}[{count}] if {count} < {READY_MADE} else Struct(f'>{{{count}}}{code}').{method})"

    def compile(self, function: str) -> Any:
        source = "\n".join(self.lines)
        exec(compile(source, f"<holdfast codec {function}>", "exec"), self.names)  # noqa: S102  # our own text, from our own declarations
        return self.names[function]
