"""Opening a log after a kill: what is cut, rebuilt, ignored and kept."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.log.errors import CorruptLog
from holdfast.log.partition_log import PartitionLog
from holdfast.wire.batch import parse_header
from tests.unit.log.samples import NOW_MS, append, contents, fill, open_log, sample


def killed(log: PartitionLog) -> Path:
    """What a kill leaves: nothing is flushed, nothing is closed properly."""
    log.close(clean=False)
    return log.directory


def last_segment(directory: Path) -> Path:
    return sorted(directory.glob("*.log"))[-1]


@given(cut=st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_a_torn_tail_is_cut_at_the_last_whole_batch(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    # given a log of one segment whose file lost its last bytes
    log = open_log(tmp_path_factory.mktemp("log"))
    stored = fill(log, 5)
    directory = killed(log)
    path = last_segment(directory)
    left = max(0, path.stat().st_size - cut)
    os.truncate(path, left)

    # when it is opened
    log = open_log(directory)

    # then it holds the batches that are whole, and no byte more
    whole = [batch for number, batch in enumerate(stored) if sum(map(len, stored[: number + 1])) <= left]
    assert contents(log) == whole
    assert path.stat().st_size == sum(map(len, whole))
    log.close(clean=False)


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_ends_the_log_before_its_batch(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int
) -> None:
    log = open_log(tmp_path_factory.mktemp("log"))
    stored = fill(log, 5)
    path = last_segment(killed(log))
    data = bytearray(path.read_bytes())
    position %= len(data)
    broken = next(n for n in range(5) if position < sum(map(len, stored[: n + 1])))
    start = sum(map(len, stored[:broken]))
    # Outside of the CRC are only the base offset and the leader epoch.
    covered = not 0 <= position - start < 8 and not 12 <= position - start < 16
    data[position] ^= 1 << bit
    path.write_bytes(data)

    log = open_log(path.parent)

    if covered:
        assert contents(log) == stored[:broken]
    else:
        assert contents(log)[:broken] == stored[:broken]
    log.close(clean=False)


@pytest.mark.parametrize("garbage", [bytes(500), b"\xff" * 500, os.urandom(500), bytes(17)])
def test_garbage_behind_the_end_is_cut(tmp_path: Path, garbage: bytes) -> None:
    log = open_log(tmp_path / "t-0")
    stored = fill(log, 5)
    path = last_segment(killed(log))
    with path.open("ab") as file:
        file.write(garbage)

    log = open_log(path.parent)

    assert contents(log) == stored
    assert append(log, sample()).base_offset == parse_header(stored[-1]).last_offset + 1


def test_a_batch_that_was_left_from_before_is_not_taken_for_the_next(tmp_path: Path) -> None:
    # given a whole old batch, with an old offset, behind the end
    log = open_log(tmp_path / "t-0")
    stored = fill(log, 4)
    path = last_segment(killed(log))
    with path.open("ab") as file:
        file.write(stored[0])

    assert contents(open_log(path.parent)) == stored


def test_a_break_in_the_middle_sets_later_segments_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path / "t-0")
    stored = fill(log, 30)
    directory = killed(log)
    second = sorted(directory.glob("*.log"))[1]
    os.truncate(second, second.stat().st_size - 1)

    log = open_log(directory)

    kept = contents(log)
    assert kept == stored[: len(kept)]
    assert len(kept) < 30
    assert list(directory.glob("*.log.corrupt")), "nothing is thrown away"
    assert "broken" in caplog.text
    assert append(log, sample()).base_offset == parse_header(kept[-1]).last_offset + 1


def test_below_the_recovery_point_nothing_is_read_again(tmp_path: Path) -> None:
    # given a log that was flushed, and a flipped bit in its first segment
    log = open_log(tmp_path / "t-0")
    stored = fill(log, 30)
    recovery_point = log.flush()
    directory = killed(log)
    first = min(directory.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)

    # then trust finds all batches, and distrust finds the flipped bit
    assert len(contents(open_log(directory, recovery_point=recovery_point))) == len(stored)
    assert len(contents(open_log(directory, recovery_point=0))) < len(stored)


def test_what_was_built_again_and_is_the_same_is_not_written_again(tmp_path: Path) -> None:
    # given a log that was closed properly, and a broker that was killed before anybody used it
    log = open_log(tmp_path / "t-0")
    fill(log, 20)
    log.close()
    killed(open_log(log.directory))
    last = last_segment(log.directory)
    indexes = last.with_suffix(".index"), last.with_suffix(".timeindex")
    before = {path: path.stat().st_mtime_ns for path in indexes}

    # when it is opened and closed again
    open_log(log.directory, recovery_point=log.end_offset).close()

    # then the indexes of its last segment are the files that they were
    assert {path: path.stat().st_mtime_ns for path in before} == before


INDEX_FAULTS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "torn": lambda path: os.truncate(path, path.stat().st_size - 3),
    "empty": lambda path: os.truncate(path, 0),
    "another log's": lambda path: path.write_bytes(b"\x01" * path.stat().st_size),
}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("fault", INDEX_FAULTS)
def test_an_index_that_is_wrong_is_built_again(tmp_path: Path, suffix: str, fault: str) -> None:
    # given a cleanly closed log with timestamps that go up and down, one index of each segment spoilt
    log = open_log(tmp_path / "t-0")
    for number in range(40):
        append(log, sample(2, timestamp=NOW_MS + (number * 7919) % 1000))
    stored, latest = contents(log), log.max_timestamp()
    times = [latest.timestamp, NOW_MS, NOW_MS + 500, NOW_MS + 900]
    expected = [log.offset_for_timestamp(time) for time in times]
    log.close()
    written = {path: path.read_bytes() for path in log.directory.glob(f"*{suffix}")}
    assert len(written) > 3
    for path in written:
        INDEX_FAULTS[fault](path)

    # when it is opened
    log = open_log(log.directory, clean=True)

    # then every look-up finds what it found before, and the close writes an index that ends where the old one did
    assert contents(log) == stored
    assert log.max_timestamp() == latest
    assert [log.offset_for_timestamp(time) for time in times] == expected
    log.close()
    assert {path: path.read_bytes()[-8:] for path in written} == {path: data[-8:] for path, data in written.items()}


def test_a_torn_snapshot_is_ignored(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(40):
        append(log, sample(producer_id=5, sequence=number))
    log.flush()
    directory = killed(log)
    snapshots = sorted(directory.glob("*.snapshot"))
    assert len(snapshots) > 1
    os.truncate(snapshots[-1], 20)

    log = open_log(directory)

    assert append(log, sample(producer_id=5, sequence=39)).duplicate
    assert not append(log, sample(producer_id=5, sequence=40)).duplicate


def test_producers_are_known_again_after_a_kill_and_after_a_close(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(6):
        append(log, sample(2, producer_id=5, sequence=2 * number))
        append(log, sample(2, producer_id=6, sequence=2 * number))

    log = open_log(killed(log))
    assert append(log, sample(2, producer_id=5, sequence=10)).base_offset == 20
    assert append(log, sample(2, producer_id=6, sequence=10)).duplicate
    log.close()
    log = open_log(log.directory, clean=True)

    assert append(log, sample(2, producer_id=5, sequence=10)).base_offset == 20
    assert not append(log, sample(2, producer_id=5, sequence=12)).duplicate


def test_a_producer_of_old_records_is_known_after_a_kill(tmp_path: Path) -> None:
    """Kafka goes by the records' timestamps and would have forgotten it."""
    log = open_log(tmp_path / "t-0")
    append(log, sample(timestamp=1_000, producer_id=5, sequence=0))

    log = open_log(killed(log))

    assert append(log, sample(timestamp=1_000, producer_id=5, sequence=0)).duplicate


def test_snapshots_do_not_pile_up(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(10):
        append(log, sample(producer_id=5, sequence=number))
        log.close()
        log = open_log(log.directory, clean=True)

    bases = {path.stem for path in log.directory.glob("*.log")}
    stray = {path.stem for path in log.directory.glob("*.snapshot")} - bases
    assert len(stray) <= 1


def test_leftovers_are_swept(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    stored = fill(log, 3)
    directory = killed(log)
    leftovers = ["x.tmp", f"{99:020d}.index", f"{99:020d}.timeindex", f"{7:020d}.log.deleted"]
    for name in leftovers:
        (directory / name).write_bytes(b"left")

    assert contents(open_log(directory)) == stored
    assert not {path.name for path in directory.iterdir()} & set(leftovers)


def test_an_unfinished_compaction_of_kafka_is_left_alone(tmp_path: Path) -> None:
    directory = killed(open_log(tmp_path / "t-0"))
    (directory / f"{0:020d}.log.swap").write_bytes(b"data")

    with pytest.raises(CorruptLog, match="swap"):
        open_log(directory)


def test_messages_of_an_old_format_are_not_taken_for_garbage(tmp_path: Path) -> None:
    body = struct.pack(">bbqii", 1, 0, NOW_MS, -1, 0)
    message = struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body
    directory = tmp_path / "t-0"
    directory.mkdir()
    # Long enough for a header of the present format.
    (directory / f"{0:020d}.log").write_bytes(message * 3)

    with pytest.raises(CorruptLog, match="format 1"):
        open_log(directory)
    assert (directory / f"{0:020d}.log").read_bytes() == message * 3


def test_the_start_offset_survives(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 20)

    log = open_log(killed(log), log_start_offset=11)

    assert log.start_offset == 11
    header = parse_header(contents(log)[0])
    assert header.base_offset <= 11 <= header.last_offset


def test_a_log_that_lost_all_that_was_not_deleted_starts_where_it_should(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 2)
    directory = killed(log)

    log = open_log(directory, log_start_offset=500)

    assert (log.start_offset, log.end_offset) == (500, 500)
    assert append(log, sample()).base_offset == 500
    log = open_log(killed(log), log_start_offset=500)
    assert log.end_offset == 501
