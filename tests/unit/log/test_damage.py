"""Files that a disk has changed: a reader gets every record or an error, and the log says where the damage is.

The reader here is the most trusting there is, as librdkafka is by default: it does not look at a CRC, takes a batch
that does not fit for one that was cut off, and goes on behind the last offset that a batch claims.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.log import checkpoint
from holdfast.log.data_directory import DataDirectory
from holdfast.log.errors import CorruptLog, CorruptSegment, DataDirectoryError
from holdfast.log.partition_log import PartitionLog
from holdfast.wire.batch import HEADER_SIZE, MAGIC, parse_header
from holdfast.wire.errors import WireError
from holdfast.wire.records import decode_batch
from tests.unit.log.samples import NOW_MS, TINY, append, sample

pytestmark = pytest.mark.usefixtures("no_syncs")

KEY = ("orders", 0)
PRODUCER = 77
BATCHES = 30

FIELDS = {
    "base offset": (0, 8),
    "batch length": (8, 4),
    "leader epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "record count": (57, 4),
    "payload": (HEADER_SIZE + 4, 8),
}
STOPS = ("clean", "killed")
SEGMENTS = ("closed", "active")


def opened(path: Path) -> tuple[DataDirectory, PartitionLog]:
    directory = DataDirectory.open(path, node_id=1)
    return directory, directory.open_log(*KEY, TINY, now_ms=NOW_MS)


def fill(log: PartitionLog, first: int, count: int) -> None:
    for number in range(first, first + count):
        batch = sample(
            3, timestamp=NOW_MS + 10 * number, value=b"value-%04d" % number, producer_id=PRODUCER, sequence=3 * number
        )
        append(log, batch)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same log of several segments, closed properly and left by a kill."""
    found = {}
    for stop in STOPS:
        path = found[stop] = tmp_path_factory.mktemp(stop) / "data"
        directory, log = opened(path)
        fill(log, 0, BATCHES)
        assert log.segment_count > 3
        directory.close({KEY: log}, clean=stop == "clean")
    return found


class Seen(NamedTuple):
    """What a reader got: offsets and values, and why it could not go on."""

    records: list[tuple[int, bytes | None]]
    error: Exception | None


def trusting_reader(log: PartitionLog, offset: int = 0) -> Seen:
    records: list[tuple[int, bytes | None]] = []
    try:
        while (region := log.read(offset, 700)) is not None:
            before = offset
            for batch in _batches(region.read()):
                header = parse_header(batch)
                found = decode_batch(batch, check_crc=False)
                records += [(record.offset, record.value) for record in found if record.offset >= offset]
                offset = header.last_offset + 1
            assert offset > before, "a reader that gets nothing asks for ever"
    except (CorruptSegment, WireError) as error:
        return Seen(records, error)
    return Seen(records, None)


def _batches(data: bytes) -> Iterator[bytes]:
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = parse_header(data, position)
        if header.magic != MAGIC:
            raise WireError(f"magic {header.magic}")
        if not 0 < header.size <= len(data) - position:
            return
        yield data[position : position + header.size]
        position += header.size


ALL_RECORDS: list[tuple[int, bytes | None]] = [
    (3 * number + index, b"value-%04d" % number) for number in range(BATCHES) for index in range(3)
]


def segment(path: Path, which: str) -> Path:
    return sorted((path / "orders-0").glob("*.log"))[1 if which == "closed" else -1]


def places(file: Path) -> dict[str, int]:
    """Where the first, a middle and the last batch begin."""
    data, found = file.read_bytes(), [0]
    while found[-1] < len(data):
        found.append(found[-1] + parse_header(data, found[-1]).size)
    starts = found[:-1]
    assert len(starts) > 2
    return {"first": starts[0], "middle": starts[len(starts) // 2], "last": starts[-1]}


def flip(file: Path, position: int, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << bit
    file.write_bytes(data)


def complaints(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("which", SEGMENTS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_of_a_batch_is_an_error_or_a_log_line_and_never_a_gap(
    prepared: dict[str, Path], tmp_path: Path, field: str, which: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    start, size = FIELDS[field]
    flips = [(start, 0), (start + size - 1, 0), (start + size - 1, 6), (start + size // 2, 3)]
    for number, (name, place) in enumerate(sorted(places(segment(prepared[stop], which)).items())):
        for byte, bit in dict.fromkeys(flips):
            path = tmp_path / f"{number}-{byte}-{bit}"
            shutil.copytree(prepared[stop], path)
            flip(segment(path, which), place + byte, bit)
            caplog.clear()

            directory, log = opened(path)
            seen = trusting_reader(log)

            cell = f"bit {bit} of byte {byte} of the {name} batch"
            assert seen.records == ALL_RECORDS[: len(seen.records)], f"{cell}: a gap, or other records"
            if len(seen.records) < len(ALL_RECORDS):
                assert seen.error is not None or complaints(caplog), f"{cell}: records are missing without a word"
            else:
                assert field not in ("payload", "record count", "last offset delta", "batch length"), cell
            if isinstance(seen.error, CorruptSegment):
                said = [getattr(record, "fields", {}) for record in complaints(caplog)]
                place_of_damage = str(seen.error.path), seen.error.position
                assert place_of_damage in [(fields.get("file"), fields.get("position")) for fields in said], cell
            if stop == "clean":
                assert isinstance(seen.error, CorruptSegment), f"{cell}: every bit of a batch is checked"
            directory.close({KEY: log}, clean=False)
            shutil.rmtree(path)


@pytest.mark.parametrize("stop", STOPS)
def test_the_control_reads_every_record_without_a_word(
    prepared: dict[str, Path], tmp_path: Path, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(prepared[stop], tmp_path / "data")

    directory, log = opened(tmp_path / "data")

    assert trusting_reader(log) == Seen(ALL_RECORDS, None)
    assert complaints(caplog) == []
    directory.close({KEY: log})


def test_the_reader_is_as_trusting_as_it_says(prepared: dict[str, Path], tmp_path: Path) -> None:
    """The control of the matrix: without the checks it skips records and does not know."""
    shutil.copytree(prepared["clean"], tmp_path / "data")
    file = segment(tmp_path / "data", "closed")
    flip(file, places(file)["middle"] + FIELDS["last offset delta"][0] + 3, 3)
    data = file.read_bytes()

    class Unchecked:
        """The bytes of the segment, as they are."""

        def __init__(self, data: bytes) -> None:
            self._data = data

        def read(self, offset: int, max_bytes: int) -> Unchecked | None:
            position = 0
            while position < len(self._data):
                header = parse_header(self._data, position)
                if header.last_offset >= offset:
                    return Unchecked(self._data[position : position + max_bytes])
                position += header.size
            return None

    class Region:
        def __init__(self, data: bytes) -> None:
            self.read = lambda: data

    class Log:
        def read(self, offset: int, max_bytes: int) -> Region | None:
            found = Unchecked(data).read(offset, max_bytes)
            return None if found is None else Region(found._data)

    seen = trusting_reader(Log(), parse_header(data).base_offset)  # type: ignore[arg-type]  # a log by its `read`

    offsets = [offset for offset, _ in seen.records]
    assert seen.error is None
    assert offsets != list(range(offsets[0], offsets[-1] + 1))


# -- reading goes on where it can, and is refused once in the log ------------------------------------------------------


def test_what_is_before_and_behind_the_damage_can_be_read(prepared: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "data"
    shutil.copytree(prepared["clean"], path)
    file = segment(path, "closed")
    place = places(file)["middle"]
    damaged = parse_header(file.read_bytes(), place)
    flip(file, place + 9, 2)
    following = int(sorted((path / "orders-0").glob("*.log"))[2].stem)

    directory, log = opened(path)

    before = trusting_reader(log)
    assert before.records == ALL_RECORDS[: damaged.base_offset]
    assert isinstance(before.error, CorruptSegment)
    assert (before.error.path, before.error.position) == (file, place)
    assert trusting_reader(log, following) == Seen(ALL_RECORDS[following:], None)
    directory.close({KEY: log})


def test_a_damaged_range_is_logged_once_however_often_it_is_read(
    prepared: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    shutil.copytree(prepared["clean"], path)
    file = segment(path, "closed")
    flip(file, places(file)["middle"] + FIELDS["payload"][0], 2)
    directory, log = opened(path)

    for _ in range(20):
        assert trusting_reader(log).error is not None

    said = [record for record in complaints(caplog) if "reads of it are refused" in record.getMessage()]
    assert len(said) == 1
    directory.close({KEY: log})


@pytest.mark.parametrize("stop", STOPS)
def test_a_closed_segment_that_was_cut_at_a_batch_is_an_error(
    prepared: dict[str, Path], tmp_path: Path, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    shutil.copytree(prepared[stop], path)
    file = segment(path, "closed")
    os.truncate(file, places(file)["last"])

    directory, log = opened(path)
    seen = trusting_reader(log)

    assert seen.records == ALL_RECORDS[: len(seen.records)]
    assert isinstance(seen.error, CorruptSegment)
    assert complaints(caplog)
    directory.close({KEY: log}, clean=False)


# -- new records are never behind bytes that cannot be read ------------------------------------------------------------


def spoil_batch_length(file: Path) -> None:
    flip(file, places(file)["last"] + 9, 4)


def spoil_middle(file: Path) -> None:
    flip(file, places(file)["middle"] + 9, 4)


TAIL_FAULTS: dict[str, Callable[[Path], object]] = {
    "cut within a batch": lambda file: os.truncate(file, file.stat().st_size - 5),
    "cut between batches": lambda file: os.truncate(file, places(file)["last"]),
    "cut to nothing": lambda file: os.truncate(file, 0),
    "garbage behind it": lambda file: file.write_bytes(file.read_bytes() + b"\x07" * 100),
    "batch length of the last batch": spoil_batch_length,
    "batch length of a batch in the middle": spoil_middle,
}


@pytest.mark.parametrize("next_stop", STOPS)
@pytest.mark.parametrize("fault", TAIL_FAULTS)
def test_records_acknowledged_after_the_damage_survive_the_next_stop(
    prepared: dict[str, Path], tmp_path: Path, fault: str, next_stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    # given a log that was closed properly, and whose last segment is damaged
    path = tmp_path / "data"
    shutil.copytree(prepared["clean"], path)
    TAIL_FAULTS[fault](segment(path, "active"))

    # when it takes records
    directory, log = opened(path)
    first = append(log, sample(value=b"acknowledged")).base_offset
    fill(log, BATCHES, 20)

    # then they have offsets that nobody had and can be read, now and after the next start; the damage is logged
    assert first == len(ALL_RECORDS)
    new = trusting_reader(log, first)
    assert (new.error, len(new.records)) == (None, 61)
    directory.close({KEY: log}, clean=next_stop == "clean")
    directory, log = opened(path)
    assert trusting_reader(log, first) == new
    seen = trusting_reader(log)
    assert seen.records[: len(ALL_RECORDS)] == ALL_RECORDS[: len(seen.records)]
    assert isinstance(seen.error, CorruptSegment) or len(seen.records) == len(ALL_RECORDS) + 61
    assert complaints(caplog)
    directory.close({KEY: log}, clean=False)


# -- indexes, snapshots, checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("which", SEGMENTS)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_flipped_bit_of_an_index_changes_no_answer(
    prepared: dict[str, Path], tmp_path: Path, suffix: str, which: str, stop: str
) -> None:
    name = segment(prepared["clean"], which).with_suffix(suffix).name
    size = (prepared["clean"] / "orders-0" / name).stat().st_size
    assert size > 12
    times = range(NOW_MS, NOW_MS + 10 * (BATCHES - 1), 37)
    for position in range(0, size, 5):
        path = tmp_path / f"{position}"
        shutil.copytree(prepared["clean"], path)
        if stop == "killed":
            (path / ".kafka_cleanshutdown").unlink()
        flip(path / "orders-0" / name, position, position % 8)

        directory, log = opened(path)

        for time in times:
            found = log.offset_for_timestamp(time)
            assert found is not None
            assert found.offset == next(
                3 * number + index for number in range(BATCHES) for index in range(3)
                if NOW_MS + 10 * number + index >= time
            )  # fmt: skip
        assert log.max_timestamp().timestamp == NOW_MS + 10 * (BATCHES - 1) + 2
        assert trusting_reader(log) == Seen(ALL_RECORDS, None)
        directory.close({KEY: log}, clean=False)
        shutil.rmtree(path)


def test_a_damaged_index_is_logged(prepared: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "data"
    shutil.copytree(prepared["clean"], path)
    flip(segment(path, "closed").with_suffix(".index"), 7, 2)

    directory, log = opened(path)

    assert trusting_reader(log) == Seen(ALL_RECORDS, None)
    assert "index built again from the log" in caplog.text
    directory.close({KEY: log})


def test_a_damaged_snapshot_is_logged_and_producers_are_known_from_the_log(
    prepared: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = max((prepared["clean"] / "orders-0").glob("*.snapshot"))
    for position in range(0, newest.stat().st_size, 9):
        path = tmp_path / f"{position}"
        shutil.copytree(prepared["clean"], path)
        flip(path / "orders-0" / newest.name, position, 1)
        caplog.clear()

        directory, log = opened(path)

        again = sample(3, timestamp=NOW_MS, producer_id=PRODUCER, sequence=3 * (BATCHES - 1))
        assert append(log, again).duplicate
        assert "producer snapshot" in caplog.text
        directory.close({KEY: log}, clean=False)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("name", [checkpoint.RECOVERY_POINTS, checkpoint.LOG_START_OFFSETS, checkpoint.LEADER_EPOCHS])
def test_a_damaged_checkpoint_hides_no_record(
    prepared: dict[str, Path], tmp_path: Path, name: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    for bit in range(4):
        path = tmp_path / f"{bit}"
        shutil.copytree(prepared["clean"], path)
        file = path / ("orders-0" if name == checkpoint.LEADER_EPOCHS else ".") / name
        if name == checkpoint.LOG_START_OFFSETS:
            checkpoint.write_offsets(file, {KEY: 1})
        if stop == "killed":
            (path / ".kafka_cleanshutdown").unlink()
        entry = file.read_text().splitlines()[2]
        at = file.read_text().index(entry) + (0 if name == checkpoint.LEADER_EPOCHS else len(entry) - 1)
        flip(file, at, bit)
        caplog.clear()

        directory, log = opened(path)

        assert trusting_reader(log, log.start_offset) == Seen(ALL_RECORDS[log.start_offset :], None)
        assert log.start_offset <= 1
        assert log.leader_epoch_end(0).end_offset == len(ALL_RECORDS)
        assert complaints(caplog)
        directory.close({KEY: log}, clean=False)


def test_a_log_that_starts_behind_its_end_is_set_aside_and_not_removed(
    prepared: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    shutil.copytree(prepared["killed"], path)
    checkpoint.write_offsets(path / checkpoint.LOG_START_OFFSETS, {KEY: 5000})
    stored = [file.read_bytes() for file in sorted((path / "orders-0").glob("*.log"))]

    directory, log = opened(path)

    assert (log.start_offset, log.end_offset) == (5000, 5000)
    assert [file.read_bytes() for file in sorted((path / "orders-0").glob("*.corrupt"))] == stored
    assert "log starts behind its end" in caplog.text
    directory.close({KEY: log})


# -- the data directory's own files ------------------------------------------------------------------------------------


def test_a_damaged_marker_means_a_start_as_after_a_kill(
    prepared: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    shutil.copytree(prepared["clean"], path)
    flip(path / ".kafka_cleanshutdown", 0, 2)

    directory, log = opened(path)

    assert not directory.was_clean
    assert trusting_reader(log) == Seen(ALL_RECORDS, None)
    assert ".kafka_cleanshutdown is damaged" in caplog.text
    directory.close({KEY: log})


def test_every_flipped_bit_of_meta_properties_is_refused(prepared: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "data"
    shutil.copytree(prepared["clean"], path)
    file = path / "meta.properties"
    sound = file.read_bytes()
    until = sound.index(b"#")

    for position in range(until):
        for bit in (0, 3, 6):
            flip(file, position, bit)
            with pytest.raises(DataDirectoryError, match=r"meta\.properties is damaged"):
                DataDirectory.open(path, node_id=1)
            file.write_bytes(sound)
    file.write_bytes(b"")
    with pytest.raises(DataDirectoryError, match=r"meta\.properties is damaged"):
        DataDirectory.open(path, node_id=1)
    file.write_bytes(sound)
    DataDirectory.open(path, node_id=1).close({})


def test_a_meta_properties_that_is_gone_is_logged(
    prepared: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    shutil.copytree(prepared["clean"], path)
    (path / "meta.properties").unlink()

    DataDirectory.open(path, node_id=1).close({})

    assert "meta.properties is missing" in caplog.text


# -- compaction --------------------------------------------------------------------------------------------------------


def test_compaction_refuses_batches_whose_offsets_do_not_follow(tmp_path: Path) -> None:
    """A key with an offset that is too large would hide every later record of it."""
    config = replace(TINY, compacts=True)
    directory = DataDirectory.open(tmp_path, node_id=1)
    log = directory.open_log(*KEY, config, now_ms=NOW_MS)
    fill(log, 0, BATCHES)
    file = segment(tmp_path, "closed")
    flip(file, places(file)["middle"] + 5, 0)

    assert struct.unpack_from(">q", file.read_bytes(), places(file)["middle"])[0] > 1000
    with pytest.raises(CorruptLog, match="behind offset"):
        log.compact(NOW_MS)
    directory.close({KEY: log}, clean=False)
