"""Keeps a few of millions of commits: the first of a partition in a generation, and those with a lower offset.

A group's offsets and the group record are in one partition of `__consumer_offsets`, and one task reads it in order. So
one pass is enough, and it keeps one number for each partition of each group, as the broker does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from holdfast.spark.pipelines.forensics.records import OFFSETS_TOPIC, RecordKind, count_unreadable
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
)

_VERSION: Final = Struct(">h")
_PARTITION: Final = Struct(">i")
_PLAIN: Final = Struct(">hqihq")
"""OffsetCommitValue v3 without metadata: version, offset, leader epoch, 0, time."""
_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_HOLDFAST_KEYS: Final = (10_000, 10_001, 10_002)
"""Holdfast's own keys: the ledger and the group records contain the same information."""
_HIGHEST_VALUE: Final = 4


class HistoryRecord(NamedTuple):
    """A row of `RECORD_COLUMNS`."""

    group_id: str
    at_ms: int
    offset: int
    kind: int
    body: bytes | None = None
    topic: str | None = None
    partition: int | None = None
    before: int | None = None
    after: int | None = None


class _Offsets:
    """The offsets of one topic in one group."""

    __slots__ = ("group", "last", "seen", "topic")

    def __init__(self, group: _Group, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.last: dict[int, int] = {}
        self.seen: dict[int, int] = {}
        """How many group records there had been at the last record that was kept for the partition."""


class _Group:
    __slots__ = ("group_id", "stored", "wanted")

    def __init__(self, group_id: str, wanted: bool) -> None:
        self.group_id = group_id
        self.wanted = wanted
        self.stored = 0


class CommitFilter:
    def __init__(self, groups: Collection[str] | None = None) -> None:
        self._wanted = None if groups is None else frozenset(groups)
        self._groups: dict[str, _Group] = {}
        self._offsets: dict[bytes, _Offsets] = {}
        """By the bytes of the key without the partition."""
        self.unreadable: Counter[str] = Counter()

    def records(self, records: Iterable[tuple[bytes | None, bytes | None, int, int]]) -> Iterator[HistoryRecord]:
        """From records in order: key, value, time and offset."""
        unpack, size, known = _PLAIN.unpack, _PLAIN.size, self._offsets
        for key, value, at_ms, place in records:
            if key is None:
                self._count_unreadable("a record without a key")
                continue
            offsets = known.get(key[:-4])
            if offsets is not None and value is not None and len(value) == size:
                version, offset, _, metadata, _ = unpack(value)
                if version == 3 and metadata == 0:
                    fact = self._commit(offsets, _PARTITION.unpack_from(key, len(key) - 4)[0], offset, at_ms, place)
                    if fact is not None:
                        yield fact
                    continue
            yield from self._other(key, value, at_ms, place)

    def unreadable_counts(self) -> Iterator[HistoryRecord]:
        """Counts of unreadable records, after all records were processed."""
        for name, count in self.unreadable.items():
            yield HistoryRecord("", 0, 0, RecordKind.UNREADABLE, name.encode(), after=count)

    def _commit(self, offsets: _Offsets, partition: int, offset: int, at_ms: int, place: int) -> HistoryRecord | None:
        group = offsets.group
        if not group.wanted:
            return None
        before = offsets.last.get(partition)
        offsets.last[partition] = offset
        if before is not None and offset < before:
            kind = RecordKind.COMMIT_BACK
        elif offsets.seen.get(partition) != group.stored:
            kind = RecordKind.FIRST_COMMIT
        else:
            return None
        offsets.seen[partition] = group.stored
        return HistoryRecord(group.group_id, at_ms, place, kind, None, offsets.topic, partition, before, offset)

    def _other(self, key: bytes, value: bytes | None, at_ms: int, place: int) -> Iterator[HistoryRecord]:
        """Records other than a plain commit of a known topic."""
        version = _VERSION.unpack_from(key)[0] if len(key) >= _VERSION.size else -1
        if version in _HOLDFAST_KEYS:
            return
        if version != _GROUP_KEY and version not in _OFFSET_KEYS:
            self._count_unreadable(f"key version {version}")
            return
        try:
            # The value of a group record is decoded later, if it is needed; here only its key.
            decoded = decode_record(key, None if version == _GROUP_KEY else value)
        except WireError:
            self._count_unreadable(self._problem(version, value))
            return
        assert decoded is not None
        about, committed = decoded
        if isinstance(about, GroupMetadataKey):
            group = self._group(about.group)
            group.stored += 1
            if group.wanted:
                yield HistoryRecord(group.group_id, at_ms, place, RecordKind.GROUP, value)
        elif isinstance(about, OffsetCommitKey):
            offsets = self._offsets.get(key[:-4])
            if offsets is None:
                offsets = self._offsets[bytes(key[:-4])] = _Offsets(self._group(about.group), about.topic)
            if isinstance(committed, OffsetCommitValue):
                fact = self._commit(offsets, about.partition, committed.offset, at_ms, place)
                if fact is not None:
                    yield fact
            else:  # deleted or expired: the next commit counts as the first
                offsets.last.pop(about.partition, None)
                offsets.seen.pop(about.partition, None)
                if not offsets.last:
                    del self._offsets[key[:-4]]

    def _group(self, group_id: str) -> _Group:
        known = self._groups.get(group_id)
        if known is None:
            wanted = self._wanted is None or group_id in self._wanted
            known = self._groups[group_id] = _Group(group_id, wanted)
        return known

    @staticmethod
    def _problem(key_version: int, value: bytes | None) -> str:
        version = _VERSION.unpack_from(value)[0] if value and len(value) >= _VERSION.size else None
        if version is not None and not 0 <= version <= _HIGHEST_VALUE:
            return f"an offset, value version {version}"
        return f"a damaged record of key version {key_version}"

    def _count_unreadable(self, what: str) -> None:
        count_unreadable(self.unreadable, f"{OFFSETS_TOPIC}: {what}")
