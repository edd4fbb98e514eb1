"""The journal of the groups: what was stored is read again, whatever stands beside it."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.groups import LOAD_CHUNK, _take
from holdfast.broker.journal import Fact, GroupJournal
from holdfast.wire.batch import batches
from holdfast.wire.compression import DEFAULT_MAX_OUTPUT
from holdfast.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from holdfast.wire.records import Record, encode_batch
from tests.support.handler_broker import NOW_MS, HandlerBroker

SEGMENT_BYTES = 100 << 20


def commit(number: int, metadata: str = "") -> Fact:
    return OffsetCommitKey("g", "orders", number), OffsetCommitValue(7 * number, -1, metadata, NOW_MS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HandlerBroker]:
    made = HandlerBroker(tmp_path / "data")
    yield made
    made.die()


@pytest.fixture
def journal(broker: HandlerBroker) -> GroupJournal:
    made = GroupJournal(broker.topics, 1, SEGMENT_BYTES)
    asyncio.run(made.ensure())
    return made


def damage_last_batch(journal: GroupJournal) -> None:
    """A byte of its records is another one, as the disk itself may bring about."""
    path = journal.append("g", [commit(1)], NOW_MS).log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 0xFF
    path.write_bytes(data)


def test_a_batch_that_cannot_be_read_costs_no_other(journal: GroupJournal, caplog: pytest.LogCaptureFixture) -> None:
    journal.append("g", [commit(0)], NOW_MS)
    damage_last_batch(journal)
    journal.append("g", [commit(2)], NOW_MS)

    with caplog.at_level(logging.ERROR):
        found = list(journal.replay(0))

    assert found == [commit(0), commit(2)]
    (told,) = caplog.records
    assert told.message == "group facts left out; they cannot be read"
    assert vars(told)["fields"] == {
        "partition": "__consumer_offsets-0",
        "offset": 1,
        "error": "the batch's CRC does not match",
    }


def test_a_record_that_cannot_be_read_costs_no_other(
    broker: HandlerBroker, journal: GroupJournal, caplog: pytest.LogCaptureFixture
) -> None:
    # given a record between two others whose key says that it is an offset, and is none
    journal.append("g", [commit(0)], NOW_MS)
    topic = broker.topics.get("__consumer_offsets")
    assert topic is not None
    unreadable = encode_batch([Record(0, NOW_MS, b"\x00\x01\x00", b"\x00")])
    topic.partitions[0].log.append(list(batches(bytearray(unreadable))), leader_epoch=0, now_ms=NOW_MS)
    journal.append("g", [commit(2)], NOW_MS)

    with caplog.at_level(logging.ERROR):
        found = list(journal.replay(0))

    assert found == [commit(0), commit(2)]
    assert [vars(told)["fields"]["offset"] for told in caplog.records] == [1]


def test_whatever_could_be_stored_is_read_again_and_compacted(journal: GroupJournal) -> None:
    """Also a fact that is larger than what a packed batch may unpack to."""
    # given a group of such a size, told twice
    assignment = bytes(DEFAULT_MAX_OUTPUT + 1)
    members = [MemberMetadata("m", None, "c", "/h", 1, 1, b"", assignment)]
    facts: list[Fact] = [
        (GroupMetadataKey("g"), GroupMetadataValue("consumer", generation, "range", "m", NOW_MS, members))
        for generation in (1, 2)
    ]
    for fact in facts:
        log = journal.append("g", [fact], NOW_MS).log

    # then both are read, and after a compaction the last
    assert list(journal.replay(0)) == facts
    done = log.compact(NOW_MS)
    assert done is not None
    assert (done.records_before, done.records_after) == (2, 1)
    assert list(journal.replay(0)) == facts[1:]


def test_what_was_read_before_the_disk_failed_is_taken() -> None:
    def failing() -> Iterator[Fact]:
        yield commit(0)
        yield commit(1)
        raise OSError("the disk is gone")

    records = failing()
    taken, error = _take(records)

    assert taken == [commit(0), commit(1)]
    assert str(error) == "the disk is gone"


def test_as_many_as_the_event_loop_takes_in_at_a_time() -> None:
    records = iter([commit(number) for number in range(LOAD_CHUNK + 1)])

    assert [len(_take(records)[0]) for _ in range(3)] == [LOAD_CHUNK, 1, 0]
