"""Computes the figures of a run from the ledger, the group's records, the topic, and the event logs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

DELAY_MS: Final = 5_000
"""A record that waits longer is delayed. A Spark batch takes a second or two on a busy machine."""


class Processed(NamedTuple):
    """Records of a partition that a member has processed, and when."""

    who: str
    partition: int
    first: int
    end: int
    at_ms: int


class Owned(NamedTuple):
    who: str
    partition: int
    from_ms: int
    to_ms: int


Downtimes = Mapping[str, Sequence[tuple[int, int]]]
"""When each member was being restarted."""


@dataclass(frozen=True)
class RecordCounts:
    lost: int
    duplicated: int
    delayed: int
    delayed_elsewhere: int
    """Of these, the records of partitions whose owner was not being restarted."""


def count_records(
    written: Mapping[int, Sequence[int]],
    processed: Iterable[Processed],
    owned: Sequence[Owned],
    away: Downtimes,
    window: tuple[int, int],
) -> RecordCounts:
    """`written` has the timestamps of all records of each partition, in the order of offsets. Delayed records are
    counted in the window only; lost and duplicated ones are counted over all records."""
    from_ms, to_ms = window
    first_at: dict[int, list[int | None]] = {partition: [None] * len(times) for partition, times in written.items()}
    duplicated = 0
    for one in sorted(processed, key=lambda one: one.at_ms):
        seen = first_at[one.partition]
        for offset in range(one.first, one.end):
            if seen[offset] is None:
                seen[offset] = one.at_ms
            else:
                duplicated += 1
    lost = delayed = elsewhere = 0
    for partition, times in written.items():
        for written_ms, at_ms in zip(times, first_at[partition], strict=True):
            if at_ms is None:
                lost += 1
            elif at_ms - written_ms > DELAY_MS and from_ms <= written_ms < to_ms:
                delayed += 1
                elsewhere += not _owner_was_away(partition, written_ms, at_ms, owned, away)
    return RecordCounts(lost, duplicated, delayed, elsewhere)


def _owner_was_away(partition: int, written_ms: int, at_ms: int, owned: Sequence[Owned], away: Downtimes) -> bool:
    return any(
        began < at_ms and written_ms < ended
        for one in owned
        if one.partition == partition and one.from_ms <= written_ms < one.to_ms
        for began, ended in away.get(one.who, ())
    )


def moves(owned: Sequence[Owned], from_ms: int, to_ms: int) -> int:
    """How often a partition changed its owner."""
    count = 0
    for partition in {one.partition for one in owned}:
        owners = sorted((one for one in owned if one.partition == partition), key=lambda one: one.from_ms)
        for before, after in itertools.pairwise(owners):
            count += before.who != after.who and from_ms < after.from_ms <= to_ms
    return count
