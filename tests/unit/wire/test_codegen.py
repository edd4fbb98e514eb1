"""The generated functions themselves, on messages declared for the purpose."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from holdfast.wire import fields
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from holdfast.wire.errors import WireError
from holdfast.wire.fields import (
    array,
    blob,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)
from holdfast.wire.message import APIS, Api, decode, decoder, encode, encode_parts, message, struct_type
from tests.support.wire_messages import INTEGER_RANGES


@struct_type
class Inner:
    number: int = int16()
    label: str = string(since=1, tag=5)


@message(versions=(0, 1), flexible=1)
class Everything:
    flag: bool = boolean()
    tiny: int = int8()
    port: int = uint16()
    count: int = uint32()
    offset: int = int64()
    share: float = float64()
    identity: bytes = uuid()
    name: str = string()
    nickname: str | None = string(nullable=0, default=None)
    body: bytes = blob()
    numbers: list[int] = array(int32())
    identities: list[bytes] = array(uuid())
    flags: list[bool] = array(boolean())
    maybe: list[str] | None = array(string(), nullable=1)
    inner: list[Inner] = array(Inner)
    extra: int = int32(since=1, tag=0, default=-1)
    nested: Inner | None = struct(Inner, since=1, tag=10_001)


@message(versions=(0, 1), flexible=1)
class Carrier:
    data: bytes | None = records(nullable=0)


ID = bytes(range(16))


# -- layout -----------------------------------------------------------------------------------------------------------


def example() -> Everything:
    return Everything(
        flag=True,
        tiny=-1,
        port=65535,
        count=4294967295,
        offset=-2,
        share=0.5,
        identity=ID,
        name="né",
        body=b"\x00\x01",
        numbers=[1, -1],
        identities=[ID],
        flags=[True, False],
        maybe=[],
        inner=[Inner(7)],
    )


def test_a_version_that_is_not_flexible_byte_by_byte() -> None:
    expected = (
        bytes.fromhex("01 ff ffff ffffffff fffffffffffffffe 3fe0000000000000")
        + ID
        + bytes.fromhex("0003 6ec3a9 ffff 00000002 0001 00000002 00000001 ffffffff 00000001")
        + ID
        + bytes.fromhex("00000002 01 00 00000000 00000001 0007")
    )

    assert encode(example(), 0) == expected
    assert decode(Everything, 0, expected) == example()


def test_a_flexible_version_byte_by_byte() -> None:
    value = example()
    value.maybe = None
    value.inner[0].label = "l"
    value.extra = 3
    value.nested = Inner(8)
    expected = (
        bytes.fromhex("01 ff ffff ffffffff fffffffffffffffe 3fe0000000000000")
        + ID
        + bytes.fromhex("04 6ec3a9 00 03 0001 03 00000001 ffffffff 02")
        + ID
        + bytes.fromhex("03 01 00 00 02 0007 01 05 02 02 6c")  # one inner struct with one tagged field
        + bytes.fromhex("02 00 04 00000003 914e 03 0008 00")  # the message's own tagged fields: 0 and 10001
    )

    assert encode(value, 1) == expected
    assert decode(Everything, 1, expected) == value


def test_tagged_fields_at_their_defaults_are_not_written() -> None:
    assert encode(Everything(), 1).endswith(b"\x01\x00"), "an empty array and no tag"


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16383, 16384, 32767])
@pytest.mark.parametrize("version", [0, 1])
def test_strings_of_every_length_that_changes_the_encoding(length: int, version: int) -> None:
    value = Everything(name="x" * length, maybe=["y" * length])

    assert decode(Everything, version, encode(value, version)) == value


@pytest.mark.parametrize("version", [0, 1])
def test_records_are_neither_copied_in_nor_out(version: int) -> None:
    data = bytes(1000)

    parts = encode_parts(Carrier(data), version)
    received = b"".join(parts)  # type: ignore[arg-type]  # bytes only, in this test
    view = decode(Carrier, version, received).data

    assert any(part is data for part in parts)
    assert isinstance(view, memoryview)
    assert view.obj is received
    assert view == data


def test_unknown_tags_inside_nested_structs_are_skipped() -> None:
    value = Everything(inner=[Inner(7, "l")])
    encoded = encode(value, 1)
    known = bytes.fromhex("01 05 02 02 6c")
    assert encoded.count(known) == 1

    with_unknown = encoded.replace(known, bytes.fromhex("03 01 00 05 02 02 6c 904e 03 787878"))

    assert decode(Everything, 1, with_unknown) == value


@pytest.mark.parametrize("size", ["03", "05"])
def test_a_tagged_field_of_the_wrong_size_is_refused(size: str) -> None:
    encoded = encode(Everything(extra=3), 1)
    damaged = encoded.replace(bytes.fromhex("01 00 04 00000003"), bytes.fromhex(f"01 00 {size} 00000003 00"))
    assert damaged != encoded

    with pytest.raises(WireError, match="tagged field"):
        decode(Everything, 1, damaged)


# -- what cannot be encoded -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("kind", INTEGER_RANGES)
def test_integers_out_of_range_are_refused(kind: str, version: int) -> None:
    @message(versions=(0, 1), flexible=1)
    class Single:
        value: int = getattr(fields, kind)()
        values: list[int] = array(getattr(fields, kind)())

    lowest, highest = INTEGER_RANGES[kind]
    for fits in (lowest, highest):
        assert decode(Single, version, encode(Single(fits, [fits]), version)) == Single(fits, [fits])
    for too_much in (lowest - 1, highest + 1):
        for value in (Single(too_much), Single(0, [too_much])):
            with pytest.raises(WireError, match="cannot encode Single"):
                encode(value, version)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "change",
    [
        {"identity": b"short"},
        {"identity": ID + b"x"},
        {"identities": [b"short"]},
        {"name": None},
        {"name": b"bytes"},
        {"name": "x" * 32768},
        {"name": "\ud800"},
        {"body": None},
        {"numbers": None},
        {"numbers": ["1"]},
        {"inner": [None]},
        {"offset": None},
        {"offset": 1.5},
    ],
    ids=str,
)
def test_values_that_do_not_fit_their_field_are_refused(change: dict[str, Any], version: int) -> None:
    value = Everything(**change)

    with pytest.raises(WireError):
        encode(value, version)


def test_null_is_refused_before_the_version_that_allows_it() -> None:
    value = Everything(maybe=None)

    with pytest.raises(WireError, match="null where a value is required"):
        encode(value, 0)
    assert decode(Everything, 1, encode(value, 1)).maybe is None


def test_a_string_longer_than_kafka_takes_is_not_taken_in() -> None:
    longest = encode(Everything(name="x" * 32767), 1)
    too_long = longest.replace(b"\x80\x80\x02x", b"\x81\x80\x02xx", 1)
    assert len(too_long) == len(longest) + 1

    with pytest.raises(WireError, match="string of 32768 bytes"):
        decode(Everything, 1, too_long)


# -- declaring and generating -----------------------------------------------------------------------------------------


def test_an_api_key_is_declared_once() -> None:
    with pytest.raises(ValueError, match="declared twice: Heartbeat and Other"):
        Api(HEARTBEAT.key, "Other", versions=(0, 0))
    assert APIS[HEARTBEAT.key] is HEARTBEAT


def test_a_codec_is_generated_once() -> None:
    assert decoder(HeartbeatRequest, 4) is decoder(HeartbeatRequest, 4)


def test_importing_the_apis_generates_nothing() -> None:
    count_codecs = """
import holdfast.wire.apis
import holdfast.wire.headers
from holdfast.wire.message import APIS, encode
classes = [cls for api in APIS.values() for cls in (api.request, api.response)]
count = lambda: sum(len(cls.encoders) + len(cls.decoders) for cls in classes)
before = count()
encode(APIS[12].request(), 4)
print(before, count())
"""
    result = subprocess.run([sys.executable, "-c", count_codecs], capture_output=True, text=True, check=True)

    assert result.stdout.split() == ["0", "1"]
