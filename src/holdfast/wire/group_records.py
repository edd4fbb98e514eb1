"""The records in `__consumer_offsets`: offsets and groups in Kafka's formats, and record types of Holdfast.

Key and value each begin with an int16. In the key it is the record type, in the value the version of the format:

    key 0, 1   OffsetCommitKey        OffsetCommitValue 0 to 4        Kafka's; 0 is what the oldest brokers wrote
    key 2      GroupMetadataKey       GroupMetadataValue 0 to 4       Kafka's
    key 10000  GenerationKey          GenerationValue 0               ours
    key 10001  HighestGenerationKey   HighestGenerationValue 0        ours
    key 10002  ExtensionsKey          ExtensionsValue 0 to 1          ours; v1 adds the partitions that were left out
    key 10003  ClaimKey               ClaimValue 0                    ours; written by gateways only

A record without a value is a tombstone: the object of the key was deleted. Readers skip unknown keys. Kafka skips ours,
and we skip those of Kafka's newer group types (3 and up). A claim is no record of a group: `decode_record` skips it.

OffsetCommitValue v1 adds a time of expiry, which v2 drops again; v3 adds the leader epoch (KIP-320). GroupMetadataValue
v1 has separate rebalance and session timeouts, v2 adds the time of the last change, v3 the instance id (KIP-345). v4 of
either is the first flexible version (KIP-915), and Kafka adds the topic's id to it.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error, unpack
from typing import Final

from holdfast.wire.errors import WireError
from holdfast.wire.fields import ZERO_UUID, array, blob, int16, int32, int64, string, uuid
from holdfast.wire.message import Buffer, decode, decoder, encode, message, struct_type

_INT16: Final = Struct(">h")


# -- Kafka's ----------------------------------------------------------------------------------------------------------


@message(versions=(0, 1))
class OffsetCommitKey:
    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(versions=(0, 4), flexible=4)
class OffsetCommitValue:
    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1, ignorable=True)
    topic_id: bytes = uuid(since=4, tag=0, ignorable=True)


@message(versions=(2, 2))
class GroupMetadataKey:
    group: str = string()


@struct_type
class MemberMetadata:
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = blob()
    assignment: bytes = blob()


@message(versions=(0, 4), flexible=4)
class GroupMetadataValue:
    """A group whose members have their assignments, or that has no members."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=0)
    leader: str | None = string(nullable=0)
    current_state_timestamp: int = int64(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


# -- ours -------------------------------------------------------------------------------------------------------------


@message(versions=(10_000, 10_000))
class GenerationKey:
    group: str = string()


@struct_type
class GenerationMember:
    member_id: str = string()
    group_instance_id: str | None = string(nullable=0, default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(default=-1)
    session_timeout: int = int32()
    subscription: bytes = blob()


@message(versions=(0, 0))
class GenerationValue:
    """A generation that all members have joined and whose leader has not sent the assignments yet.

    Kafka loses it in a crash and reuses its number; see `docs/differences.md`.
    """

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=0)
    leader: str | None = string(nullable=0)
    current_state_timestamp: int = int64(default=-1)
    members: list[GenerationMember] = array(GenerationMember)


@message(versions=(10_001, 10_001))
class HighestGenerationKey:
    """There is only one such record, so the key has no fields."""


@message(versions=(0, 0))
class HighestGenerationValue:
    """The highest generation of all deleted groups. A new group starts above it."""

    generation: int = int32()


@message(versions=(10_002, 10_002))
class ExtensionsKey:
    group: str = string()


@struct_type
class RegisteredMember:
    group_instance_id: str = string()
    deadline: int = int64()
    """When its registration expires, in milliseconds of the wall clock."""


@struct_type
class UnassignedTopic:
    name: str = string()
    partitions: int = int32()
    """The number of partitions that the leader knew when it left some of them unassigned."""


@message(versions=(0, 1))
class ExtensionsValue:
    """Holdfast's additional state of a group: configs, registered members, and in-generation changes."""

    target_size: int = int32(default=0)
    standby_takeover_ms: int = int32(default=-1)
    registered: list[RegisteredMember] = array(RegisteredMember)
    generation: int = int32()
    """The generation to which the fields below apply."""
    in_generation_changes: int = int32()
    changed_members: list[str] = array(string())
    """Members whose assignment has changed since they joined. They may not know it yet."""
    unassigned_on_purpose: list[UnassignedTopic] = array(UnassignedTopic, since=1)
    """Topics with partitions that were left unassigned on purpose."""


@message(versions=(10_003, 10_003))
class ClaimKey:
    """The format is part of the key, so that compaction keeps the last claim of each: a gateway that does not know a
    newer format finds it in the log."""

    log_format: int = int16()


@message(versions=(0, 0))
class ClaimValue:
    """The writer of the partition from here on: the producer whose epoch fences all earlier ones."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    gateway_id: str = string()


# -- records ----------------------------------------------------------------------------------------------------------

GroupRecordKey = OffsetCommitKey | GroupMetadataKey | GenerationKey | HighestGenerationKey | ExtensionsKey
GroupRecordValue = OffsetCommitValue | GroupMetadataValue | GenerationValue | HighestGenerationValue | ExtensionsValue
GroupRecord = tuple[GroupRecordKey, GroupRecordValue | None]
"""A key and its value. A record without a value is a tombstone."""

_KINDS: Final[dict[int, tuple[type[GroupRecordKey], type[GroupRecordValue]]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    10_000: (GenerationKey, GenerationValue),
    10_001: (HighestGenerationKey, HighestGenerationValue),
    10_002: (ExtensionsKey, ExtensionsValue),
}
"""Key and value by the key's version."""

_KEY_VERSIONS: Final[dict[type[GroupRecordKey], int]] = {key: version for version, (key, _) in _KINDS.items()}
"""The version in which a key is written: its highest one."""


_CLAIM_KEY_VERSION: Final = 10_003
CLAIM_KEY_PREFIX: Final = _INT16.pack(_CLAIM_KEY_VERSION)
"""The first bytes of the key of every claim."""
_OFFSET_KEY_VERSION: Final = 1
_OFFSET_KEY: Final = _INT16.pack(_OFFSET_KEY_VERSION)
_OFFSET_VALUE_VERSION: Final = 3
_REMEMBERED: Final = 128
"""The number of cached key prefixes of a group and topic. It is small, because a hostile name may have 32 kB."""
_INT32: Final = Struct(">i")
_PLAIN_OFFSET: Final = Struct(">hqihq")
"""OffsetCommitValue v3 without metadata: version, offset, leader epoch, 0, time of the commit."""


def offset_key_prefix(group: str, topic: str) -> bytes:
    """An offset's key without the partition. It is the same for many offsets of a commit."""
    try:
        names = group.encode(), topic.encode()
        return b"".join([_OFFSET_KEY, *[part for name in names for part in (_INT16.pack(len(name)), name)]])
    except (error, UnicodeEncodeError) as failure:
        raise WireError(f"cannot encode the key of an offset: {failure}") from failure


@lru_cache(_REMEMBERED)
def names_in(prefix: bytes) -> tuple[str, str] | None:
    """Group and topic of an offset's key without its partition; None if the bytes are something else."""
    if not prefix.startswith(_OFFSET_KEY):
        return None
    try:
        key, end = decoder(OffsetCommitKey, _OFFSET_KEY_VERSION)(prefix + bytes(_INT32.size), _INT16.size)
    except WireError:
        return None
    return (key.group, key.topic) if end == len(prefix) + _INT32.size else None


def encode_record(key: GroupRecordKey, value: GroupRecordValue | None) -> tuple[bytes, bytes | None]:
    return encode_key(key), None if value is None else encode_value(value)


def encode_key(key: GroupRecordKey) -> bytes:
    if type(key) is OffsetCommitKey:
        try:
            return offset_key_prefix(key.group, key.topic) + _INT32.pack(key.partition)
        except error as failure:
            raise WireError(f"cannot encode {key}: {failure}") from failure
    return _encode_key(key)


def _encode_key(key: GroupRecordKey) -> bytes:
    version = _KEY_VERSIONS[type(key)]
    return _INT16.pack(version) + encode(key, version)


def encode_value(value: GroupRecordValue, version: int | None = None) -> bytes:
    """The value in the given version, or in a suitable one."""
    if version is None:
        version = _version_for(value)
    encoded = encode(value, version)
    return _INT16.pack(version) + encoded


def _version_for(value: GroupRecordValue) -> int:
    """The version that older brokers can read (v3 for Kafka's, before KIP-915), unless a field requires another."""
    if isinstance(value, OffsetCommitValue):
        if value.expire_timestamp != -1:
            return 1
        return 3 if value.topic_id == ZERO_UUID else 4
    if isinstance(value, ExtensionsValue):
        return 1 if value.unassigned_on_purpose else 0
    return 3 if isinstance(value, GroupMetadataValue) else 0


def decode_record(key: Buffer, value: Buffer | None) -> tuple[GroupRecordKey, GroupRecordValue | None] | None:
    """The decoded record; None if its key has an unknown type, which is skipped.

    A value of an unknown version is an error. Skipping it would lose an offset or a group.
    """
    if type(key) is bytes and type(value) is bytes and (plain := _decode_plain_offset(key, value)) is not None:
        return plain
    key_version = _version_prefix(key, "key")
    if key_version not in _KINDS:
        return None
    key_type, value_type = _KINDS[key_version]
    decoded_key = decode(key_type, key_version, key, _INT16.size)
    if value is None:
        return decoded_key, None
    return decoded_key, decode(value_type, _version_prefix(value, "value"), value, _INT16.size)


def encode_claim(key: ClaimKey, value: ClaimValue) -> tuple[bytes, bytes]:
    return CLAIM_KEY_PREFIX + encode(key, _CLAIM_KEY_VERSION), _INT16.pack(0) + encode(value, 0)


def decode_claim_key(key: Buffer) -> ClaimKey | None:
    """The key of a claim; None if the record is another one. Values of later versions are not known, but keys are."""
    if _version_prefix(key, "key") != _CLAIM_KEY_VERSION:
        return None
    return decode(ClaimKey, _CLAIM_KEY_VERSION, key, _INT16.size)


def _decode_plain_offset(key: bytes, value: bytes) -> tuple[OffsetCommitKey, OffsetCommitValue] | None:
    """A fast path that takes three fifths of the time. Nearly every record of the group log is of this type, and a
    start reads all of them."""
    if len(value) != _PLAIN_OFFSET.size:
        return None
    version, offset, leader_epoch, metadata_length, committed_ms = _PLAIN_OFFSET.unpack(value)
    names = names_in(key[: -_INT32.size])
    if version != _OFFSET_VALUE_VERSION or metadata_length != 0 or names is None:
        return None
    (partition,) = _INT32.unpack_from(key, len(key) - _INT32.size)
    return OffsetCommitKey(*names, partition), OffsetCommitValue(offset, leader_epoch, "", committed_ms)


def _version_prefix(buffer: Buffer, what: str) -> int:
    try:
        (version,) = _INT16.unpack_from(buffer)
    except error as failure:
        raise WireError(f"{what} of a group record is {len(buffer)} bytes long: no room for its version") from failure
    return version  # type: ignore[no-any-return]  # struct cannot say that "h" is an int


# -- partitions -------------------------------------------------------------------------------------------------------


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` for this group, as in Kafka."""
    # Java hashes the UTF-16 units of a string to a signed 32-bit number.
    units = group_id.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for unit in unpack(f">{len(units) // 2}H", units):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    if hashed >= 1 << 31:
        hashed = (1 << 32) - hashed
    # The lowest signed 32-bit number has no positive counterpart. Kafka uses 0.
    return 0 if hashed == 1 << 31 else hashed % partition_count
