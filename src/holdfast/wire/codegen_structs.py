"""Creates the structs of a decoded message, for `codegen`: one by one, or a whole array of short ones.

An array of structs that have only numbers and empty strings is one run of equal layouts, which `struct` can decode in
one call. Examples are the partitions of an OffsetCommit without metadata and those of many other requests.
"""

from __future__ import annotations

import struct
from typing import Any

from holdfast.wire.codegen_source import Source
from holdfast.wire.fields import FIXED_FORMATS, Spec, specs_of


def make(src: Source, cls: type[Any], values: list[str], target: str) -> None:
    """Setting the slots here takes two thirds of the time of an __init__ call."""
    src.names["new"] = object.__new__
    made = src.fresh("made")
    src.add(f"{made} = new({src.bind(cls.__name__, cls)})")
    for (name, _), value in zip(specs_of(cls), values, strict=True):
        src.add(f"{made}.{name} = {value}")
    src.add(f"{target} = {made}")


def has_short_form(spec: Spec, version: int) -> bool:
    """A struct of numbers and strings. If all strings are empty, as the metadata of offsets, all have one size."""
    if spec.struct is None or spec.nullable_at(version):
        return False
    kinds = {field.kind for _, field in specs_of(spec.struct) if field.present(version) and field.tag is None}
    return bool(kinds) and kinds <= {"string", *FIXED_FORMATS}


def decode_short_structs(src: Source, cls: type[Any], version: int, flexible: bool, count: str, items: str) -> None:
    """If all elements have their shortest form, fills `items` in half of the time. Otherwise leaves it empty."""
    formats, row, refused, values = "", [], [], []
    empty, null, length = (1, 0, "B") if flexible else (0, -1, "h")
    for name, spec in specs_of(cls):
        if not spec.present(version) or spec.tag is not None:
            values.append("[]" if spec.kind == "array" and spec.default is not None else repr(spec.default))
            continue
        row.append(src.fresh("v_" + name + "_"))
        formats += FIXED_FORMATS.get(spec.kind, length)
        if spec.kind in FIXED_FORMATS:
            values.append(row[-1])
        elif spec.nullable_at(version):
            refused.append(f"{row[-1]} not in ({empty}, {null})")
            values.append(f"'' if {row[-1]} == {empty} else None")
        else:
            refused.append(f"{row[-1]} != {empty}")
            values.append("''")
    if flexible:
        row.append(src.fresh("tags"))
        formats += "B"
        refused.append(row[-1])
    size, made = struct.calcsize(">" + formats), src.fresh("e")
    src.add(f"for {', '.join(row)}, in {src.struct_method(formats, 'iter_unpack')}(buf[pos:pos + {count} * {size}]):")
    src.indent += 1
    if refused:
        src.add(f"if {' or '.join(refused)}: {items} = []; break")
    make(src, cls, values, made)
    src.add(f"{items}.append({made})")
    src.indent -= 1
    src.add(f"else: pos += {count} * {size}")
