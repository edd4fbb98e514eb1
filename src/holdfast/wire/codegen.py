"""Specialised encode and decode functions, generated per (message, version) from the declarations.

Code is generated because a loop over field descriptions costs more than the encoding itself. The generated functions
are specific to a version, so they have no branches on it. Runs of fixed-size fields become one struct call, and nested
arrays become inlined loops.

Hostile input: a length or count is compared with the remaining bytes before anything is allocated for it. The elements
of all arrays of one message are counted against `MAX_ELEMENTS`, because an empty element takes two bytes on the wire
and two hundred in memory. All errors are `WireError`.

Large messages: the same functions are also generated as generators, which yield between array elements, so that a
caller can pause in the middle of a message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, Final

from holdfast.wire.codegen_source import Source
from holdfast.wire.codegen_structs import decode_short_structs, has_short_form, make
from holdfast.wire.fields import FIXED_FORMATS, FIXED_SIZES, Spec, specs_of
from holdfast.wire.varint import encode_uvarint

Encoder = Callable[[Any, list[Any]], None]
Decoder = Callable[[Any, int], tuple[Any, int]]
SlicedEncoder = Callable[[Any, list[Any]], Generator[None, None, None]]
SlicedDecoder = Callable[[Any, int], Generator[None, None, tuple[Any, int]]]

MAX_ELEMENTS: Final = 200_000
"""Array elements in one message. A commit or fetch of 100,000 partitions fits; at about 0.5 µs and 200 bytes an
element, the largest message costs a tenth of a second and 40 MB rather than minutes and the whole memory."""

MAX_STRING: Final = 0x7FFF
"""The maximum bytes of a string: the largest 2-byte length of versions that are not flexible, and Kafka's limit in all
versions."""

# -- decoding ---------------------------------------------------------------------------------------------------------


def make_decoder(cls: type[Any], version: int, flexible: bool) -> Decoder:
    """A function (buffer, position) -> (message, position after it)."""
    return _decoder(Source(), cls, version, flexible)  # type: ignore[no-any-return]


def make_sliced_decoder(cls: type[Any], version: int, flexible: bool) -> SlicedDecoder:
    """The same function as a generator."""
    return _decoder(Source(sliced=True), cls, version, flexible)  # type: ignore[no-any-return]


def _decoder(src: Source, cls: type[Any], version: int, flexible: bool) -> Any:
    src.lines.append("def decode(buf, pos):")
    src.names["FAILURES"] = (IndexError, struct.error, UnicodeDecodeError, OverflowError)
    src.add("end = len(buf)")
    src.may_pause()
    src.add(f"left = {MAX_ELEMENTS}")
    src.add("try:")
    src.indent += 1
    _decode_struct(src, cls, version, flexible, "message")
    src.add("return message, pos")
    src.indent -= 1
    src.add("except FAILURES as error:")
    src.add(f"    raise WireError('malformed {cls.__name__} v{version}: %s' % error) from error")
    return src.compile("decode")


def _decode_struct(src: Source, cls: type[Any], version: int, flexible: bool, target: str) -> None:
    specs = specs_of(cls)
    values: list[str] = []
    run: list[tuple[str, Spec]] = []
    tagged: list[tuple[str, Spec]] = []
    for name, spec in specs:
        variable = src.fresh("v_" + name + "_")
        values.append(variable)
        if not spec.present(version) or spec.tag is not None:
            _decode_default(src, spec, variable)
            if spec.tag is not None and spec.present(version):
                tagged.append((variable, spec))
        elif spec.kind in FIXED_FORMATS:
            run.append((variable, spec))
        else:
            _decode_run(src, run)
            _decode_value(src, spec, version, flexible, variable)
    _decode_run(src, run)
    if flexible:
        _decode_tags(src, tagged, version)
    make(src, cls, values, target)


def _decode_default(src: Source, spec: Spec, variable: str) -> None:
    if spec.kind == "array" and spec.default is not None:
        src.add(f"{variable} = []")
    else:
        src.add(f"{variable} = {spec.default!r}")


def _decode_run(src: Source, run: list[tuple[str, Spec]]) -> None:
    """Consecutive fixed-size fields are read by one struct call, which also checks that they are all there."""
    if not run:
        return
    formats = "".join(FIXED_FORMATS[spec.kind] for _, spec in run)
    size = sum(FIXED_SIZES[spec.kind] for _, spec in run)
    targets = ", ".join(variable for variable, _ in run)
    src.add(f"{targets}, = {src.struct_method(formats, 'unpack_from')}(buf, pos); pos += {size}")
    run.clear()


def _decode_value(src: Source, spec: Spec, version: int, flexible: bool, target: str) -> None:
    if spec.kind in FIXED_FORMATS:
        _decode_run(src, [(target, spec)])
    elif spec.kind == "struct":
        assert spec.struct is not None
        if spec.nullable_at(version):
            _decode_nullable_struct(src, spec.struct, version, flexible, target)
        else:
            _decode_struct(src, spec.struct, version, flexible, target)
    elif spec.kind == "array":
        _decode_array(src, spec, version, flexible, target)
    else:
        _decode_sized(src, spec, version, flexible, target)


def _decode_nullable_struct(src: Source, cls: type[Any], version: int, flexible: bool, target: str) -> None:
    """The struct has a leading byte, which is negative if the struct is null."""
    src.add("pos += 1")
    src.add("if buf[pos - 1] > 127:")
    src.add(f"    {target} = None")
    src.add("else:")
    src.indent += 1
    _decode_struct(src, cls, version, flexible, target)
    src.indent -= 1


def _decode_length(src: Source, flexible: bool, formats: str, size: int) -> str:
    """The next length or count, as a variable; -1 is null in either encoding."""
    length = src.fresh("n")
    if flexible:
        src.add(f"{length} = buf[pos]; pos += 1")
        src.add(f"if {length} > 127: {length}, pos = uvarint(buf, pos - 1)")
        src.add(f"{length} -= 1")
    else:
        src.add(f"{length}, = {src.struct_method(formats, 'unpack_from')}(buf, pos); pos += {size}")
    return length


def _decode_null(src: Source, spec: Spec, version: int, length: str, target: str) -> None:
    """Opens `if length < 0: … else:`; the caller fills the else branch, one step deeper."""
    src.add(f"if {length} < 0:")
    if spec.nullable_at(version):
        src.add(f"    {target} = None")
    else:
        src.add("    raise WireError('null or negative length %d where a value is required' % " + length + ")")
    src.add("else:")
    src.indent += 1


def _decode_sized(src: Source, spec: Spec, version: int, flexible: bool, target: str) -> None:
    short = spec.kind == "string"
    length = _decode_length(src, flexible, "h" if short else "i", 2 if short else 4)
    _decode_null(src, spec, version, length, target)
    if short and flexible:
        # Kafka rejects it, too. Otherwise we would accept a string that we cannot encode.
        src.add(f"if {length} > {MAX_STRING}: raise WireError('string of %d bytes' % {length})")
    stop = src.fresh("stop")
    src.add(f"{stop} = pos + {length}")
    src.add(f"if {stop} > end: raise WireError('length %d past the end of the message' % {length})")
    piece = {"string": "str(buf[pos:{0}], 'utf-8')", "bytes": "bytes(buf[pos:{0}])"}.get(
        spec.kind, "memoryview(buf)[pos:{0}]"
    )
    src.add(f"{target} = {piece.format(stop)}")
    src.add(f"pos = {stop}")
    src.indent -= 1


def _decode_array(src: Source, spec: Spec, version: int, flexible: bool, target: str) -> None:
    assert spec.element is not None
    count = _decode_length(src, flexible, "i", 4)
    smallest = max(1, minimum_size(spec.element, version, flexible))
    _decode_null(src, spec, version, count, target)
    src.add(f"if {count} > (end - pos) // {smallest}: raise WireError('%d elements past the end' % {count})")
    src.add(f"left -= {count}")
    src.add(f"if left < 0: raise WireError('more than {MAX_ELEMENTS} array elements in one message')")
    if spec.element.kind in FIXED_FORMATS and spec.element.kind != "uuid":
        code, size = FIXED_FORMATS[spec.element.kind], FIXED_SIZES[spec.element.kind]
        unpack = src.sized_struct_method(code, "unpack_from", count)
        src.add(f"{target} = list({unpack}(buf, pos)); pos += {count} * {size}")
    else:
        element = src.fresh("e")
        # The list grows under another name: inside a loop of a loop the target is assigned once per round.
        items = src.fresh("items")
        src.add(f"{items} = []")
        is_tried = not src.sliced and has_short_form(spec.element, version)
        if is_tried:
            assert spec.element.struct is not None
            decode_short_structs(src, spec.element.struct, version, flexible, count, items)
        src.add(f"for _ in range({f'0 if {items} else {count}' if is_tried else count}):")
        src.indent += 1
        src.may_pause()
        _decode_value(src, spec.element, version, flexible, element)
        src.add(f"{items}.append({element})")
        src.indent -= 1
        src.add(f"{target} = {items}")
    src.indent -= 1


def _decode_tags(src: Source, tagged: list[tuple[str, Spec]], version: int) -> None:
    """Known tags fill their fields; unknown ones are skipped, never an error."""
    count, tag, size, stop = (src.fresh(stem) for stem in ("tags", "tag", "size", "stop"))
    src.add(f"{count} = buf[pos]; pos += 1")
    src.add(f"if {count}:")
    src.indent += 1
    src.add(f"if {count} > 127: {count}, pos = uvarint(buf, pos - 1)")
    src.add(f"left -= {count}")
    src.add(f"if left < 0: raise WireError('more than {MAX_ELEMENTS} tagged fields in one message')")
    src.add(f"for _ in range({count}):")
    src.indent += 1
    src.may_pause()
    src.add(f"{tag}, pos = uvarint(buf, pos)")
    src.add(f"{size}, pos = uvarint(buf, pos)")
    src.add(f"{stop} = pos + {size}")
    src.add(f"if {stop} > end: raise WireError('tagged field past the end of the message')")
    for variable, spec in tagged:
        src.add(f"if {tag} == {spec.tag}:")
        src.indent += 1
        _decode_value(src, spec, version, True, variable)
        src.add(f"if pos != {stop}: raise WireError('tagged field {spec.tag} has the wrong size')")
        src.add("continue")
        src.indent -= 1
    src.add(f"pos = {stop}")
    src.indent -= 2


def minimum_size(spec: Spec, version: int, flexible: bool) -> int:
    """The minimum size of a value of this type, to reject counts that exceed the message."""
    if spec.kind in FIXED_SIZES:
        return FIXED_SIZES[spec.kind]
    if spec.kind == "struct":
        assert spec.struct is not None
        if spec.nullable_at(version):
            return 1
        inner = sum(
            minimum_size(field, version, flexible)
            for _, field in specs_of(spec.struct)
            if field.present(version) and field.tag is None
        )
        return inner + (1 if flexible else 0)
    if flexible:
        return 1
    return 2 if spec.kind == "string" else 4


# -- encoding ---------------------------------------------------------------------------------------------------------


def make_encoder(cls: type[Any], version: int, flexible: bool) -> Encoder:
    """A function (message, parts) that appends the message's bytes to the list `parts`."""
    return _encoder(Source(), cls, version, flexible)  # type: ignore[no-any-return]


def make_sliced_encoder(cls: type[Any], version: int, flexible: bool) -> SlicedEncoder:
    """The same as a generator. Whenever it yields, the caller may remove the content of `parts`."""
    return _encoder(Source(sliced=True), cls, version, flexible)  # type: ignore[no-any-return]


def _encoder(src: Source, cls: type[Any], version: int, flexible: bool) -> Any:
    src.lines.append("def encode(message, parts):")
    src.names["FAILURES"] = (struct.error, TypeError, AttributeError, UnicodeEncodeError)
    src.add("append = parts.append")
    src.add("try:")
    src.indent += 1
    src.add("pass")
    src.may_pause()
    _encode_struct(src, cls, version, flexible, "message", "append")
    src.indent -= 1
    src.add("except FAILURES as error:")
    src.add(f"    raise WireError('cannot encode {cls.__name__} v{version}: %s' % error) from error")
    return src.compile("encode")


def _encode_struct(src: Source, cls: type[Any], version: int, flexible: bool, value: str, append: str) -> None:
    run: list[tuple[str, Spec]] = []
    tagged: list[tuple[str, Spec]] = []
    for name, spec in specs_of(cls):
        field = f"{value}.{name}"
        if not spec.present(version):
            if not spec.ignorable:
                _encode_refusal(src, cls, name, spec, version, field)
        elif spec.tag is not None:
            tagged.append((field, spec))
        elif spec.kind in FIXED_FORMATS:
            run.append((field, spec))
        else:
            _encode_run(src, run, append)
            _encode_value(src, spec, version, flexible, field, append)
    if flexible and run and not tagged:
        _encode_run(src, run, append, padding="x")  # a byte of zero: no tags
        return
    _encode_run(src, run, append)
    if flexible:
        _encode_tags(src, sorted(tagged, key=lambda entry: entry[1].tag or 0), version, append)


def _is_default(spec: Spec, field: str) -> str:
    if spec.kind == "array" and spec.default is not None:
        return f"({field} is not None and not {field})"
    if spec.default is None:
        return f"{field} is None"
    return f"{field} == {spec.default!r}"


def _encode_refusal(src: Source, cls: type[Any], name: str, spec: Spec, version: int, field: str) -> None:
    src.add(f"if not ({_is_default(spec, field)}):")
    src.add(f"    raise WireError('{cls.__name__} v{version} cannot carry {name}')")


def _encode_run(src: Source, run: list[tuple[str, Spec]], append: str, padding: str = "") -> None:
    if not run:
        return
    formats = "".join(FIXED_FORMATS[spec.kind] for _, spec in run) + padding
    values = ", ".join(field for field, _ in run)
    for field, spec in run:
        if spec.kind == "uuid":
            _encode_uuid_check(src, field)
    src.add(f"{append}({src.struct_method(formats, 'pack')}({values}))")
    run.clear()


def _encode_uuid_check(src: Source, field: str) -> None:
    """struct would silently pad or truncate an id of another length."""
    src.add(f"if len({field}) != 16: raise WireError('id of %d bytes, not 16' % len({field}))")


def _encode_value(src: Source, spec: Spec, version: int, flexible: bool, field: str, append: str) -> None:
    if spec.kind in FIXED_FORMATS:
        _encode_run(src, [(field, spec)], append)
    elif spec.kind == "struct":
        assert spec.struct is not None
        name = src.fresh("s")
        src.add(f"{name} = {field}")
        if not spec.nullable_at(version):
            _encode_struct(src, spec.struct, version, flexible, name, append)
            return
        src.add(f"if {name} is None:")
        src.add(f"    {append}(b'\\xff')")
        src.add("else:")
        src.indent += 1
        src.add(f"{append}(b'\\x01')")
        _encode_struct(src, spec.struct, version, flexible, name, append)
        src.indent -= 1
    elif spec.kind == "array":
        _encode_array(src, spec, version, flexible, field, append)
    else:
        _encode_sized(src, spec, version, flexible, field, append)


def _encode_null(src: Source, spec: Spec, version: int, flexible: bool, name: str, append: str) -> None:
    """Opens `if value is None: … else:`; the caller fills the else branch, one step deeper."""
    src.add(f"if {name} is None:")
    if spec.nullable_at(version):
        null = b"\x00" if flexible else (b"\xff\xff" if spec.kind == "string" else b"\xff\xff\xff\xff")
        src.add(f"    {append}({null!r})")
    else:
        src.add("    raise WireError('null where a value is required')")
    src.add("else:")
    src.indent += 1


def _encode_length(src: Source, flexible: bool, formats: str, length: str, append: str) -> None:
    if flexible:
        src.add(f"{append}(UV[{length} + 1] if {length} < 127 else to_uvarint({length} + 1))")
    else:
        src.add(f"{append}({src.struct_method(formats, 'pack')}({length}))")


def _encode_sized(src: Source, spec: Spec, version: int, flexible: bool, field: str, append: str) -> None:
    data = src.fresh("b")
    length = src.fresh("n")
    src.add(f"{data} = {field}")
    _encode_null(src, spec, version, flexible, data, append)
    if spec.kind == "string":
        src.add(f"{data} = {data}.encode()")
    src.add(f"{length} = len({data})")
    if spec.kind == "string" and flexible:
        # A compact string could be longer, but Kafka rejects it, so no other client could read it.
        src.add(f"if {length} > {MAX_STRING}: raise WireError('string of %d bytes' % {length})")
    _encode_length(src, flexible, "h" if spec.kind == "string" else "i", length, append)
    src.add(f"{append}({data})")
    src.indent -= 1


def _encode_array(src: Source, spec: Spec, version: int, flexible: bool, field: str, append: str) -> None:
    assert spec.element is not None
    items = src.fresh("items")
    src.add(f"{items} = {field}")
    _encode_null(src, spec, version, flexible, items, append)
    length = src.fresh("n")
    src.add(f"{length} = len({items})")
    _encode_length(src, flexible, "i", length, append)
    if spec.element.kind in FIXED_FORMATS:
        code = FIXED_FORMATS[spec.element.kind]
        if code == "16s":
            element = src.fresh("u")
            src.add(f"for {element} in {items}:")
            src.indent += 1
            src.may_pause()
            _encode_run(src, [(element, spec.element)], append)
            src.indent -= 1
        else:
            src.add(f"{append}({src.sized_struct_method(code, 'pack', length)}(*{items}))")
    else:
        element = src.fresh("e")
        src.add(f"for {element} in {items}:")
        src.indent += 1
        src.add("pass")
        src.may_pause()
        _encode_value(src, spec.element, version, flexible, element, append)
        src.indent -= 1
    src.indent -= 1


def _encode_tags(src: Source, tagged: list[tuple[str, Spec]], version: int, append: str) -> None:
    """Tagged fields at their default are not written, so unused fields take no space."""
    if not tagged:
        src.add(f"{append}(b'\\x00')")
        return
    found = src.fresh("tagged")
    src.add(f"{found} = []")
    for field, spec in tagged:
        body, put = src.fresh("body"), src.fresh("put")
        src.add(f"if not ({_is_default(spec, field)}):")
        src.indent += 1
        src.add(f"{body} = []; {put} = {body}.append")
        _encode_value(src, spec, version, True, field, put)
        src.add(f"{body} = b''.join({body})")
        src.add(f"{found}.append(b''.join(({encode_uvarint(spec.tag or 0)!r}, to_uvarint(len({body})), {body})))")
        src.indent -= 1
    src.add(f"{append}(to_uvarint(len({found})))")
    src.add(f"if {found}: {append}(b''.join({found}))")
