"""Records of `__consumer_offsets`: Kafka's bytes, ours beside them, and what is done with bytes that are neither."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.wire.errors import WireError
from holdfast.wire.fields import ZERO_UUID
from holdfast.wire.group_records import (
    ClaimKey,
    ClaimValue,
    ExtensionsKey,
    ExtensionsValue,
    GenerationKey,
    GenerationMember,
    GenerationValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecordKey,
    GroupRecordValue,
    HighestGenerationKey,
    HighestGenerationValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    RegisteredMember,
    UnassignedTopic,
    decode_claim_key,
    decode_record,
    encode_claim,
    encode_key,
    encode_value,
    partition_for,
)
from tests.support.wire_messages import messages, restricted

OFFSET_KEY = OffsetCommitKey("g", "t", 7)
OFFSET_KEY_BYTES = bytes.fromhex("00010001 670001 7400000007")
OFFSET, METADATA, COMMITTED = "0000000000000005", "0001 6d", "00000000000003e8"
TOPIC_ID = bytes(range(16))

OFFSET_VALUES = {
    "v0": ("0000" + OFFSET + METADATA + COMMITTED, OffsetCommitValue(5, -1, "m", 1000)),
    "v1": (
        "0001" + OFFSET + METADATA + COMMITTED + "00000000000007d0",
        OffsetCommitValue(5, -1, "m", 1000, expire_timestamp=2000),
    ),
    "v2": ("0002" + OFFSET + METADATA + COMMITTED, OffsetCommitValue(5, -1, "m", 1000)),
    "v3": ("0003" + OFFSET + "00000002" + METADATA + COMMITTED, OffsetCommitValue(5, 2, "m", 1000)),
    "v4": ("0004" + OFFSET + "00000002" + "02 6d" + COMMITTED + "00", OffsetCommitValue(5, 2, "m", 1000)),
    "v4 with the topic's id": (
        "0004" + OFFSET + "00000002" + "02 6d" + COMMITTED + "01" + "00 10" + TOPIC_ID.hex(),
        OffsetCommitValue(5, 2, "m", 1000, topic_id=TOPIC_ID),
    ),
    "v4 with a tag from the future": (
        "0004" + OFFSET + "00000002" + "02 6d" + COMMITTED + "01" + "05 02 ffff",
        OffsetCommitValue(5, 2, "m", 1000),
    ),
}

GROUP_KEY = GroupMetadataKey("g")
GROUP_KEY_BYTES = bytes.fromhex("00020001 67")
CONSUMER, RANGE, LEADER = "0008 636f6e73756d6572", "0005 72616e6765", "0003 612d31"
HEAD = CONSUMER + "0000001b" + RANGE + LEADER
CLIENT, TIMEOUTS, OPAQUE = "0002 69640005 2f686f7374", "00000bb8000007d0", "00000002 010200000001 03"


def group(since: int = -1, rebalance_timeout: int = -1, group_instance_id: str | None = None) -> GroupMetadataValue:
    """Generation 27 with one member, in which old versions leave the parameters at their defaults."""
    member = MemberMetadata(
        "a-1", group_instance_id, "id", "/host", rebalance_timeout, 2000, b"\x01\x02", assignment=b"\x03"
    )
    return GroupMetadataValue("consumer", 27, "range", "a-1", since, [member])


GROUP_VALUES = {
    "v0": ("0000" + HEAD + "00000001" + LEADER + CLIENT + "000007d0" + OPAQUE, group()),
    "v1": ("0001" + HEAD + "00000001" + LEADER + CLIENT + TIMEOUTS + OPAQUE, group(rebalance_timeout=3000)),
    "v2": (
        "0002" + HEAD + COMMITTED + "00000001" + LEADER + CLIENT + TIMEOUTS + OPAQUE,
        group(1000, 3000),
    ),
    "v3": (
        "0003" + HEAD + COMMITTED + "00000001" + LEADER + "0001 61" + CLIENT + TIMEOUTS + OPAQUE,
        group(1000, 3000, "a"),
    ),
    "v3 of a dynamic member": (
        "0003" + HEAD + COMMITTED + "00000001" + LEADER + "ffff" + CLIENT + TIMEOUTS + OPAQUE,
        group(1000, 3000),
    ),
    "v3 of an empty group": (
        "0003" + CONSUMER + "0000001b" + "ffff" + "ffff" + COMMITTED + "00000000",
        GroupMetadataValue("consumer", 27, None, None, 1000),
    ),
    "v4": (
        "0004" + "09 636f6e73756d6572" + "0000001b" + "06 72616e6765" + "04 612d31" + COMMITTED
        + "02" + "04 612d31" + "02 61" + "03 6964" + "06 2f686f7374" + TIMEOUTS + "03 0102" + "02 03" + "00" + "00",
        group(1000, 3000, "a"),
    ),
}  # fmt: skip

GENERATION_KEY = GenerationKey("g")
GENERATION = GenerationValue(
    "consumer", 28, "range", "a-1", 1000, [GenerationMember("a-1", "a", "id", "/host", 3000, 2000, b"\x01\x02")]
)

WRITTEN: list[tuple[GroupRecordKey, GroupRecordValue]] = [
    (OFFSET_KEY, OffsetCommitValue(5, 2, "m", 1000)),
    (GROUP_KEY, group(1000, 3000, "a")),
    (GENERATION_KEY, GENERATION),
    (HighestGenerationKey(), HighestGenerationValue(41)),
    (ExtensionsKey("g"), ExtensionsValue(2, -1, [RegisteredMember("a", 9)], 28, 1, ["a-1"], [UnassignedTopic("t", 4)])),
]
"""One record of each kind."""


def kind(value: Any) -> str:
    return type(value).__name__


# -- Kafka's bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("written", "value"), OFFSET_VALUES.values(), ids=OFFSET_VALUES)
def test_offset_values_of_all_versions_are_read(written: str, value: OffsetCommitValue) -> None:
    assert decode_record(OFFSET_KEY_BYTES, bytes.fromhex(written)) == (OFFSET_KEY, value)


@pytest.mark.parametrize(("written", "value"), GROUP_VALUES.values(), ids=GROUP_VALUES)
def test_group_values_of_all_versions_are_read(written: str, value: GroupMetadataValue) -> None:
    assert decode_record(GROUP_KEY_BYTES, bytes.fromhex(written)) == (GROUP_KEY, value)


@pytest.mark.parametrize("key", [OFFSET_KEY_BYTES, GROUP_KEY_BYTES], ids=["offset", "group"])
@pytest.mark.parametrize("version", [5, 0x7FFF, -1])
def test_a_value_of_an_unknown_version_is_an_error(key: bytes, version: int) -> None:
    value = version.to_bytes(2, "big", signed=True) + bytes(100)

    with pytest.raises(WireError, match=f"no version {version}"):
        decode_record(key, value)


@pytest.mark.parametrize("version", [3, 23, 9999, 10_003, 0x7FFF, -1])
def test_an_unknown_kind_of_key_is_skipped_whatever_its_record_holds(version: int) -> None:
    key = version.to_bytes(2, "big", signed=True)

    assert decode_record(key + b"\x00\x01g", b"\x00\x09 anything") is None
    assert decode_record(key, None) is None


def test_a_claim_is_not_a_record_of_a_group_and_its_format_is_read_from_its_key() -> None:
    key, value = encode_claim(ClaimKey(3), ClaimValue(7, 2, "gateway"))

    assert key == bytes.fromhex("2713 0003")
    assert value == bytes.fromhex("0000 0000000000000007 0002 0007") + b"gateway"
    assert decode_record(key, value) is None
    assert decode_claim_key(key) == ClaimKey(3)
    assert decode_claim_key(OFFSET_KEY_BYTES) is None
    with pytest.raises(WireError):
        decode_claim_key(key[:-1])


def test_the_offset_key_of_the_oldest_brokers_means_the_same() -> None:
    oldest = b"\x00\x00" + OFFSET_KEY_BYTES[2:]

    assert decode_record(oldest, None) == (OFFSET_KEY, None)


def test_an_offset_is_written_with_key_v1_and_value_v3() -> None:
    written, value = OFFSET_VALUES["v3"]

    assert encode_key(OFFSET_KEY) == OFFSET_KEY_BYTES
    assert encode_value(value) == bytes.fromhex(written)


def test_a_group_is_written_with_key_v2_and_value_v3() -> None:
    for case in ("v3", "v3 of a dynamic member", "v3 of an empty group"):
        written, value = GROUP_VALUES[case]
        assert encode_value(value) == bytes.fromhex(written)
    assert encode_key(GROUP_KEY) == GROUP_KEY_BYTES


def test_an_offset_that_expires_is_written_as_v1_which_alone_can_say_so() -> None:
    written, value = OFFSET_VALUES["v1"]
    value_with_more = OffsetCommitValue(5, 2, "m", 1000, expire_timestamp=2000, topic_id=TOPIC_ID)

    assert encode_value(value) == bytes.fromhex(written)
    assert encode_value(value_with_more) == bytes.fromhex(written)


def test_an_offset_with_the_topics_id_is_written_as_v4_which_alone_can_say_so() -> None:
    written, value = OFFSET_VALUES["v4 with the topic's id"]

    assert encode_value(value) == bytes.fromhex(written)


@pytest.mark.parametrize("cases", [OFFSET_VALUES, GROUP_VALUES], ids=["offset", "group"])
def test_every_version_is_written_on_demand(cases: dict[str, tuple[str, GroupRecordValue]]) -> None:
    for name, (written, value) in cases.items():
        if "future" not in name:
            assert encode_value(value, version=int(name[1])) == bytes.fromhex(written)


def test_a_version_that_does_not_exist_is_not_written() -> None:
    for version in (-1, 5):
        with pytest.raises(WireError, match=f"no version {version}"):
            encode_value(group(), version=version)


# -- ours -------------------------------------------------------------------------------------------------------------


def test_the_bytes_of_an_awaited_generation() -> None:
    key = bytes.fromhex("27100001 67")
    value = bytes.fromhex(
        "0000" + CONSUMER + "0000001c" + RANGE + LEADER + COMMITTED
        + "00000001" + LEADER + "0001 61" + CLIENT + TIMEOUTS + "00000002 0102"
    )  # fmt: skip

    assert (encode_key(GENERATION_KEY), encode_value(GENERATION)) == (key, value)
    assert decode_record(key, value) == (GENERATION_KEY, GENERATION)


def test_the_bytes_of_the_highest_generation() -> None:
    key, value = bytes.fromhex("2711"), bytes.fromhex("0000 00000029")

    assert (encode_key(HighestGenerationKey()), encode_value(HighestGenerationValue(41))) == (key, value)
    assert decode_record(key, value) == (HighestGenerationKey(), HighestGenerationValue(41))


@pytest.mark.parametrize("key", [GENERATION_KEY, HighestGenerationKey()], ids=kind)
def test_our_own_values_have_one_version(key: GroupRecordKey) -> None:
    with pytest.raises(WireError, match="no version 1"):
        decode_record(encode_key(key), b"\x00\x01" + bytes(100))


def test_the_bytes_of_what_a_group_has_beyond_kafka() -> None:
    """Version 0 holds all but the partitions that were left out, and is written where there are none: what was written
    before there was version 1 is read, and an ordinary group's record is as it was."""
    key, kept = bytes.fromhex("27120001 67"), "00000002 ffffffff 00000000 0000001c 00000001 00000001 0003 612d31"
    plain, left_out = ExtensionsValue(2, -1, [], 28, 1, ["a-1"]), [UnassignedTopic("t", 4)]
    v0, v1 = bytes.fromhex("0000" + kept), bytes.fromhex("0001" + kept + "00000001 0001 74 00000004")

    assert (encode_key(ExtensionsKey("g")), encode_value(plain)) == (key, v0)
    assert decode_record(key, v0) == (ExtensionsKey("g"), plain)
    plain.unassigned_on_purpose = left_out
    assert encode_value(plain) == v1
    assert decode_record(key, v1) == (ExtensionsKey("g"), plain)


# -- all kinds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "value"), WRITTEN, ids=kind)
def test_a_record_without_value_says_that_it_is_gone(key: GroupRecordKey, value: GroupRecordValue) -> None:
    assert decode_record(encode_key(key), None) == (key, None)


@pytest.mark.parametrize(("key_type", "value_type"), [(type(key), type(value)) for key, value in WRITTEN])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_what_is_written_is_read_again(key_type: Any, value_type: Any, data: st.DataObject) -> None:
    key, drawn = data.draw(messages(key_type)), data.draw(messages(value_type))
    for version in range(value_type.VERSIONS[0], value_type.VERSIONS[1] + 1):
        value = restricted(drawn, version)

        assert decode_record(encode_key(key), encode_value(value, version)) == (key, value)


@settings(max_examples=100, deadline=None)
@given(drawn=messages(OffsetCommitValue), expires=st.booleans(), has_topic_id=st.booleans())
def test_an_offset_loses_nothing_in_the_version_chosen_for_it(
    drawn: OffsetCommitValue, expires: bool, has_topic_id: bool
) -> None:
    drawn.expire_timestamp = drawn.expire_timestamp if expires else -1
    drawn.topic_id = drawn.topic_id if has_topic_id else ZERO_UUID

    record = decode_record(OFFSET_KEY_BYTES, encode_value(drawn))

    assert record is not None
    read = record[1]
    assert isinstance(read, OffsetCommitValue)
    assert read.expire_timestamp == drawn.expire_timestamp
    if drawn.expire_timestamp == -1:  # Kafka, too, pays for the time of expiry with the rest
        assert read == drawn


@pytest.mark.parametrize(("key", "value"), WRITTEN, ids=kind)
def test_a_record_cut_short_anywhere_is_refused(key: GroupRecordKey, value: GroupRecordValue) -> None:
    key_bytes, value_bytes = encode_key(key), encode_value(value)
    for size in range(len(key_bytes)):
        with pytest.raises(WireError):
            decode_record(key_bytes[:size], value_bytes)
    for size in range(len(value_bytes)):
        with pytest.raises(WireError):
            decode_record(key_bytes, value_bytes[:size])


@pytest.mark.parametrize(("key", "value"), WRITTEN, ids=kind)
def test_a_damaged_record_is_refused_or_read(key: GroupRecordKey, value: GroupRecordValue) -> None:
    key_bytes, value_bytes = encode_key(key), encode_value(value)
    for position in range(len(value_bytes)):
        for damage in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x00\x00\x00\x00"):
            damaged = value_bytes[:position] + damage + value_bytes[position + 4 :]
            with contextlib.suppress(WireError):
                decode_record(key_bytes, damaged)


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=80))
def test_any_bytes_are_refused_skipped_or_read(key: bytes, value: bytes | None) -> None:
    for kind_of_key in (b"", b"\x00\x01", b"\x00\x02", b"\x27\x10", b"\x27\x11"):
        with contextlib.suppress(WireError):
            decode_record(kind_of_key + key, value)


def test_a_group_that_claims_a_billion_members_is_refused() -> None:
    claims = bytes.fromhex("0003" + HEAD + COMMITTED + "3b9aca00") + bytes(1000)

    with pytest.raises(WireError, match="1000000000 elements"):
        decode_record(GROUP_KEY_BYTES, claims)


def test_names_that_do_not_fit_are_refused_before_they_are_stored() -> None:
    with pytest.raises(WireError):
        encode_key(GroupMetadataKey("g" * 0x8000))
    with pytest.raises(WireError):
        encode_value(OffsetCommitValue(5, 2, "m" * 0x8000, 1000))


# -- partitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 97 * 31 + 98),
        ("hello", 99162322),
        ("é", 0xE9),
        ("😀", 0xD83D * 31 + 0xDE00),  # two units in UTF-16
        ("console-consumer", -648006740),
    ],
)
def test_a_group_is_where_javas_hash_puts_it(group_id: str, java_hash: int) -> None:
    for count in (1, 3, 50):
        assert partition_for(group_id, count) == abs(java_hash) % count


def test_the_hash_without_a_positive_counterpart_counts_as_zero() -> None:
    # Known for its hash of -2147483648, which leaves 48 over when divided by 50.
    assert partition_for("polygenelubricants", 50) == 0


@given(group_id=st.text(), count=st.integers(1, 1000))
def test_a_group_is_in_a_partition_that_exists(group_id: str, count: int) -> None:
    assert 0 <= partition_for(group_id, count) < count
