"""The group log: what was stored is read again, whatever is stored beside it."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.broker.groups.local_group_log import LocalGroupLog
from holdfast.broker.groups.record_batches import RECORDS_AT_A_TIME
from holdfast.broker.groups.service import LOAD_CHUNK, _next_chunk
from holdfast.broker.storage.disk_health import DiskHealth
from holdfast.broker.storage.flusher import Flusher
from holdfast.wire.batch import batches
from holdfast.wire.compression import DEFAULT_MAX_OUTPUT
from holdfast.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from holdfast.wire.offset_records import OffsetRecords
from holdfast.wire.records import Record, encode_batch
from tests.support.handler_broker import NOW_MS, HandlerBroker

SEGMENT_BYTES = 100 << 20


def commit(number: int, metadata: str = "") -> GroupRecord:
    return OffsetCommitKey("g", "orders", number), OffsetCommitValue(7 * number, -1, metadata, NOW_MS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HandlerBroker]:
    made = HandlerBroker(tmp_path / "data")
    yield made
    made.die()


@pytest.fixture
def group_log(broker: HandlerBroker) -> LocalGroupLog:
    made = LocalGroupLog(
        broker.topics, Flusher(), DiskHealth(), broker.tasks, partition_count=1, segment_bytes=SEGMENT_BYTES
    )
    asyncio.run(made.create_if_missing())
    return made


def replayed(group_log: LocalGroupLog) -> list[GroupRecord]:
    return [record for records in group_log.replay(0) for record in records]


def damage_last_batch(group_log: LocalGroupLog) -> None:
    """A byte of its records is another one, as the disk itself may bring about."""
    path = group_log.write("g", [commit(1)], NOW_MS).log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 0xFF
    path.write_bytes(data)


def test_a_batch_that_cannot_be_read_costs_no_other(group_log: LocalGroupLog, caplog: pytest.LogCaptureFixture) -> None:
    group_log.write("g", [commit(0)], NOW_MS)
    damage_last_batch(group_log)
    group_log.write("g", [commit(2)], NOW_MS)

    with caplog.at_level(logging.ERROR):
        found = replayed(group_log)

    assert found == [commit(0), commit(2)]
    (reported,) = caplog.records
    assert reported.message == "unreadable group records skipped"
    assert vars(reported)["fields"] == {
        "partition": "__consumer_offsets-0",
        "offset": 1,
        "error": "the batch's CRC does not match",
    }


def test_a_record_that_cannot_be_read_costs_no_other(
    broker: HandlerBroker, group_log: LocalGroupLog, caplog: pytest.LogCaptureFixture
) -> None:
    # given a record between two others whose key says that it is an offset, and is none
    group_log.write("g", [commit(0)], NOW_MS)
    topic = broker.topics.get("__consumer_offsets")
    assert topic is not None
    unreadable = encode_batch([Record(0, NOW_MS, b"\x00\x01\x00", b"\x00")])
    topic.partitions[0].log.append(list(batches(bytearray(unreadable))), leader_epoch=0, now_ms=NOW_MS)
    group_log.write("g", [commit(2)], NOW_MS)

    with caplog.at_level(logging.ERROR):
        found = replayed(group_log)

    assert found == [commit(0), commit(2)]
    assert [vars(reported)["fields"]["offset"] for reported in caplog.records] == [1]


def test_whatever_could_be_stored_is_read_again_and_compacted(group_log: LocalGroupLog) -> None:
    """Also a fact that is larger than what a packed batch may unpack to."""
    # given a group of such a size, described twice
    assignment = bytes(DEFAULT_MAX_OUTPUT + 1)
    members = [MemberMetadata("m", None, "c", "/h", 1, 1, b"", assignment)]
    facts: list[GroupRecord] = [
        (GroupMetadataKey("g"), GroupMetadataValue("consumer", generation, "range", "m", NOW_MS, members))
        for generation in (1, 2)
    ]
    for fact in facts:
        log = group_log.write("g", [fact], NOW_MS).log

    # then both are read, and after a compaction the last
    assert replayed(group_log) == facts
    done = log.compact(NOW_MS)
    assert done is not None
    assert (done.records_before, done.records_after) == (2, 1)
    assert replayed(group_log) == facts[1:]


@pytest.mark.parametrize("metadata", ["", "metadata"])
def test_a_commit_is_replayed_as_it_was_stored(group_log: LocalGroupLog, metadata: str) -> None:
    """At once if no offset has metadata, otherwise record by record."""
    values = [OffsetCommitValue(7, 3, "", NOW_MS), OffsetCommitValue(8, -1, metadata, NOW_MS)]
    committed = OffsetRecords("g", {("orders", index): value for index, value in enumerate(values)})

    group_log.write("g", committed, NOW_MS)
    (found,) = group_log.replay(0)

    assert list(found) == list(committed)
    assert isinstance(found, OffsetRecords) == (metadata == "")


def test_a_large_batch_is_replayed_in_pieces(group_log: LocalGroupLog) -> None:
    """The event loop serves requests between two of them."""
    tombstones: list[GroupRecord] = [
        (OffsetCommitKey("g", "orders", n), None) for n in range(2 * RECORDS_AT_A_TIME + 1)
    ]

    group_log.write("g", tombstones, NOW_MS)
    pieces = list(group_log.replay(0))

    assert [len(piece) for piece in pieces] == [RECORDS_AT_A_TIME, RECORDS_AT_A_TIME, 1]
    assert [record for piece in pieces for record in piece] == tombstones


def test_what_was_read_before_the_disk_failed_is_taken() -> None:
    def failing() -> Iterator[Sequence[GroupRecord]]:
        yield [commit(0)]
        yield [commit(1)]
        raise OSError("the disk is gone")

    records = failing()
    taken, error = _next_chunk(records)

    assert taken == [[commit(0)], [commit(1)]]
    assert str(error) == "the disk is gone"


def test_as_many_as_the_event_loop_takes_in_at_a_time() -> None:
    records = iter([[commit(number)] for number in range(LOAD_CHUNK + 1)])

    assert [len(_next_chunk(records)[0]) for _ in range(3)] == [LOAD_CHUNK, 1, 0]


def test_a_client_that_disconnects_while_the_log_is_created_costs_no_other(broker: HandlerBroker) -> None:
    log = LocalGroupLog(
        broker.topics, Flusher(), DiskHealth(), broker.tasks, partition_count=1, segment_bytes=SEGMENT_BYTES
    )

    async def scenario() -> None:
        first = asyncio.create_task(log.create_if_missing())
        for _ in range(3):  # until it waits for the topic
            await asyncio.sleep(0)
        first.cancel()
        await broker.tasks.join()
        assert broker.topics.get("__consumer_offsets") is not None, "the topic is created all the same"
        assert not log.is_created, "the first call did not see the end"

        await log.create_if_missing()

        assert log.is_created
        log.write("g", [commit(1)], NOW_MS)

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert replayed(log) == [commit(1)]
