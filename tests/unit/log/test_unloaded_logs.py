"""Logs at rest: known by their checkpoints, looked at when somebody asks."""

import threading
from pathlib import Path

import pytest

from holdfast.log import checkpoint
from holdfast.log.data_directory import DataDirectory
from holdfast.log.errors import StorageError
from holdfast.log.partition_log import PartitionLog
from tests.unit.log.samples import NOW_MS, TINY, append, contents, fill, sample

KEY = ("orders", 0)


def opened(path: Path) -> tuple[DataDirectory, PartitionLog]:
    directory = DataDirectory.open(path, node_id=1)
    return directory, directory.open_log(*KEY, TINY, now_ms=NOW_MS)


def closed_with_records(path: Path, *, deleted_before: int = 0) -> list[bytes]:
    """A log of several segments, closed properly; returns what it holds."""
    directory, log = opened(path)
    fill(log, 40)
    log.delete_records_before(deleted_before)
    stored = contents(log)
    directory.close({KEY: log})
    return stored


def test_a_log_that_was_closed_properly_rests_until_it_is_read(tmp_path: Path) -> None:
    stored = closed_with_records(tmp_path, deleted_before=7)

    directory, log = opened(tmp_path)

    assert not log.is_loaded
    assert (log.start_offset, log.end_offset, log.recovery_point) == (7, 79, 79)
    assert log.flush() == 79
    assert not log.needs_flush
    assert log.read(79, 100) is None
    assert not log.is_loaded, "none of that needs its directory"
    assert contents(log) == stored
    assert log.is_loaded
    directory.close({KEY: log})


def test_a_log_is_not_at_rest_after_a_kill(tmp_path: Path) -> None:
    """The control of the test above."""
    directory, log = opened(tmp_path)
    fill(log, 40)
    directory.close({KEY: log}, clean=False)

    directory, log = opened(tmp_path)

    assert log.is_loaded
    directory.close({KEY: log})


def test_a_log_at_rest_is_appended_to_and_closed_again(tmp_path: Path) -> None:
    closed_with_records(tmp_path)
    directory, log = opened(tmp_path)

    assert append(log, sample(3)).base_offset == 79
    directory.close({KEY: log})

    directory, log = opened(tmp_path)
    assert (log.is_loaded, log.end_offset) == (False, 82)
    assert append(log, sample()).base_offset == 82
    directory.close({KEY: log}, clean=False)


def test_closing_a_log_at_rest_writes_nothing_of_it(tmp_path: Path) -> None:
    closed_with_records(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "orders-0").iterdir()}

    directory, log = opened(tmp_path)
    directory.close({KEY: log})

    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "orders-0").iterdir()} == before
    directory, log = opened(tmp_path)
    assert (log.is_loaded, log.end_offset) == (False, 79)
    directory.close({KEY: log})


def test_retention_reaches_a_log_at_rest(tmp_path: Path) -> None:
    closed_with_records(tmp_path)
    directory, log = opened(tmp_path)

    deleted = log.apply_retention(NOW_MS + 8 * 24 * 3_600_000)

    assert len(deleted) > 3
    assert log.start_offset == log.end_offset == 79
    directory.close({KEY: log})


def test_an_idempotent_producer_is_known_by_a_log_at_rest(tmp_path: Path) -> None:
    directory, log = opened(tmp_path)
    append(log, sample(3, producer_id=7, sequence=0))
    directory.close({KEY: log})
    directory, log = opened(tmp_path)

    assert append(log, sample(3, producer_id=7, sequence=0)).duplicate
    directory.close({KEY: log})


def test_apache_kafkas_marker_does_not_say_where_logs_start(tmp_path: Path) -> None:
    stored = closed_with_records(tmp_path)
    marker = tmp_path / ".kafka_cleanshutdown"
    marker.write_bytes(marker.read_bytes().replace(b"-1", b"17"))

    directory, log = opened(tmp_path)

    assert directory.was_clean
    assert log.is_loaded
    assert contents(log) == stored
    directory.close({KEY: log})


def test_a_wrong_checkpoint_is_logged_and_the_files_are_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = closed_with_records(tmp_path)
    checkpoint.write_offsets(tmp_path / checkpoint.RECOVERY_POINTS, {KEY: 99})
    directory, log = opened(tmp_path)
    assert log.end_offset == 99

    assert contents(log) == stored
    assert log.end_offset == 79
    assert "orders-0" in caplog.text
    assert append(log, sample()).base_offset == 79
    directory.close({KEY: log})


def test_a_damaged_checkpoint_is_logged_and_the_files_are_believed_from_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = closed_with_records(tmp_path)
    path = tmp_path / checkpoint.RECOVERY_POINTS
    path.write_text(path.read_text().replace("79", "99"))

    directory, log = opened(tmp_path)

    assert (log.is_loaded, log.end_offset) == (True, 79)
    assert contents(log) == stored
    assert "CRC does not match" in caplog.text
    directory.close({KEY: log})


def test_a_missing_directory_is_created_as_a_new_log(tmp_path: Path) -> None:
    closed_with_records(tmp_path)
    for path in (tmp_path / "orders-0").iterdir():
        path.unlink()
    (tmp_path / "orders-0").rmdir()

    directory, log = opened(tmp_path)

    assert log.is_loaded
    directory.close({KEY: log})


def test_an_unreadable_log_raises_for_each_request_and_is_tried_again(tmp_path: Path) -> None:
    stored = closed_with_records(tmp_path)
    directory, log = opened(tmp_path)
    aside = (tmp_path / "orders-0").rename(tmp_path / "aside")
    (tmp_path / "orders-0").write_text("a file, not a directory")

    with pytest.raises(StorageError, match="cannot open"):
        log.read(0, 100)

    (tmp_path / "orders-0").unlink()
    aside.rename(tmp_path / "orders-0")
    assert contents(log) == stored
    directory.close({KEY: log})


def test_a_log_that_is_closed_at_rest_does_not_wake(tmp_path: Path) -> None:
    """The topic is deleted: a late reader must not make its directory again."""
    closed_with_records(tmp_path)
    directory, log = opened(tmp_path)

    log.close(clean=False)
    directory.delete_partition(*KEY)

    assert log.segment_count == 0
    assert not (tmp_path / "orders-0").exists()
    directory.close({}, clean=False)


def test_two_threads_wake_it_once(tmp_path: Path) -> None:
    stored = closed_with_records(tmp_path)
    directory, log = opened(tmp_path)
    seen: list[list[bytes]] = []
    start = threading.Barrier(4)

    def read() -> None:
        start.wait(10)
        seen.append(contents(log))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert seen == [stored] * 4
    assert append(log, sample()).base_offset == 79
    directory.close({KEY: log})
