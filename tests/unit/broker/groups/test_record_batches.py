"""Records of groups in batches: what several appends add to one batch is read again, in order."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.groups.record_batches import RECORDS_AT_A_TIME, decode_group_batch, encode_group_records
from holdfast.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from holdfast.wire.offset_records import OffsetRecords
from holdfast.wire.records import batch_of

NOW_MS = 1_700_000_000_000


def offsets(group: str, count: int, metadata: str = "") -> OffsetRecords:
    values = {("orders", number): OffsetCommitValue(number, -1, metadata, NOW_MS) for number in range(count)}
    return OffsetRecords(group, values)


def group(name: str) -> list[GroupRecord]:
    return [(GroupMetadataKey(name), GroupMetadataValue("consumer", 1, None, None, NOW_MS))]


appends = st.one_of(
    st.builds(offsets, st.sampled_from(["g", "other"]), st.integers(1, 200), st.sampled_from(["", "m"])),
    st.builds(group, st.sampled_from(["g", "other"])),
    st.just([(OffsetCommitKey("g", "orders", 1), None)]),
)


@given(st.lists(appends, min_size=1, max_size=5))
def test_appends_in_one_batch_are_read_in_order(parts: list[list[GroupRecord]]) -> None:
    encoded, count = b"", 0
    for records in parts:
        encoded += encode_group_records(records, NOW_MS, count)
        count += len(records)

    chunks, unreadable = decode_group_batch(batch_of(encoded, count, NOW_MS).data)

    assert unreadable is None
    assert latest(chunks) == latest(parts)


def latest(parts: Sequence[Sequence[GroupRecord]]) -> dict[str, object]:
    """The last value of each key, which is all that a replay needs of the offsets in one batch."""
    return {repr(key): value for records in parts for key, value in records}


def test_many_records_are_read_in_chunks() -> None:
    records = [record for number in range(RECORDS_AT_A_TIME + 1) for record in group(f"group-{number}")]
    data = batch_of(encode_group_records(records, NOW_MS, 0), len(records), NOW_MS).data

    chunks, _ = decode_group_batch(data)

    assert list(map(len, chunks)) == [RECORDS_AT_A_TIME, 1]
