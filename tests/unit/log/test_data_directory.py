"""The data directory: one owner, its identity, its checkpoints, its partitions."""

import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from holdfast.log import checkpoint, partition_metadata
from holdfast.log.data_directory import DataDirectory
from holdfast.log.errors import CorruptLog, DataDirectoryError, StorageError
from holdfast.log.partition_log import PartitionLog
from tests.unit.log.samples import NOW_MS, TINY, append, contents, fill, sample

HOLDER = """
import sys, time
from pathlib import Path
from holdfast.log.data_directory import DataDirectory
held = DataDirectory.open(Path(sys.argv[1]), node_id=1)
print("held", flush=True)
sys.stdin.read()
"""


def open_directory(path: Path, **options: str) -> DataDirectory:
    return DataDirectory.open(path, node_id=1, **options)


def open_log(directory: DataDirectory, topic: str = "orders", partition: int = 0) -> PartitionLog:
    return directory.open_log(topic, partition, TINY, now_ms=NOW_MS)


def test_a_second_process_reports_the_owner_and_a_kill_releases_the_lock(tmp_path: Path) -> None:
    # given a process that holds the directory
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        # when another one comes, it is refused
        with pytest.raises(DataDirectoryError) as refusal:
            open_directory(tmp_path)
        assert str(tmp_path) in str(refusal.value)
        assert f"process {holder.pid}" in str(refusal.value)

        # and when the holder is killed, the directory is free at once
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        open_directory(tmp_path).close({})


def test_a_second_use_in_one_process_is_refused_too(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)

    with pytest.raises(DataDirectoryError, match=f"process {os.getpid()}"):
        open_directory(tmp_path)

    directory.close({})
    open_directory(tmp_path).close({})


def test_the_identity_is_kept(tmp_path: Path) -> None:
    first = open_directory(tmp_path)
    first.close({})

    again = open_directory(tmp_path)
    again.close({})

    assert len(first.cluster_id) == 22
    assert again.cluster_id == first.cluster_id
    text = (tmp_path / "meta.properties").read_text()
    assert "version=1\n" in text
    assert "node.id=1\n" in text
    assert f"cluster.id={first.cluster_id}\n" in text


def test_a_directory_of_another_broker_is_refused_and_not_kept_locked(tmp_path: Path) -> None:
    open_directory(tmp_path, cluster_id="ours").close({})

    with pytest.raises(DataDirectoryError, match=r"node\.id=1"):
        DataDirectory.open(tmp_path, node_id=2)
    with pytest.raises(DataDirectoryError, match=r"cluster\.id=ours"):
        open_directory(tmp_path, cluster_id="theirs")
    open_directory(tmp_path, cluster_id="ours").close({})


def test_a_path_that_cannot_be_a_directory_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match="file"):
        open_directory(tmp_path / "file" / "data")


def test_only_a_close_leaves_the_marker_of_one(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    assert not directory.was_clean
    directory.close({})

    directory = open_directory(tmp_path)
    assert directory.was_clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists(), "from now on a kill would find it dirty"
    directory.close({}, clean=False)

    assert not open_directory(tmp_path).was_clean


def test_logs_come_back_with_their_checkpoints(tmp_path: Path) -> None:
    # given a log that was flushed and had records deleted
    directory = open_directory(tmp_path)
    log = open_log(directory)
    fill(log, 20)
    log.flush()
    log.delete_records_before(7)
    directory.write_recovery_points({("orders", 0): log})
    directory.write_start_offsets({("orders", 0): log})
    kept = contents(log)
    directory.close({("orders", 0): log}, clean=False)

    # when the directory is opened after a kill
    directory = open_directory(tmp_path)
    log = open_log(directory)

    # then
    assert (log.start_offset, log.recovery_point) == (7, log.end_offset)
    assert contents(log) == kept
    assert checkpoint.read_offsets(tmp_path / checkpoint.RECOVERY_POINTS) == {("orders", 0): log.end_offset}


def test_a_partition_that_is_not_open_keeps_its_checkpoints(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    for topic in ("kept", "other"):
        log = open_log(directory, topic)
        fill(log, 10)
        log.delete_records_before(5)
        directory.write_start_offsets({(topic, 0): log})

    assert checkpoint.read_offsets(tmp_path / checkpoint.LOG_START_OFFSETS) == {("kept", 0): 5, ("other", 0): 5}


def test_partitions_are_found_by_their_directories(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    for topic, partition in (("orders", 0), ("orders", 11), ("with-dash.and_dot", 3)):
        open_log(directory, topic, partition)
    for foreign in ("orders-1.0123456789abcdef-future", "orders-2.0123456789abcdef-stray", "no_number", "-5"):
        (tmp_path / foreign).mkdir()

    found = directory.partitions()

    assert found == {
        ("orders", 0): tmp_path / "orders-0",
        ("orders", 11): tmp_path / "orders-11",
        ("with-dash.and_dot", 3): tmp_path / "with-dash.and_dot-3",
    }


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = open_log(directory)
    fill(log, 10)
    directory.write_start_offsets({("orders", 0): log})
    region = log.read(0, 100)
    assert region is not None
    log.close(clean=False)

    directory.delete_partition("orders", 0)
    assert directory.partitions() == {}
    assert list(tmp_path.glob("orders-0.*-delete"))
    assert append(open_log(directory), sample()).base_offset == 0, "the name can be used again"

    directory.purge_deleted()
    assert not list(tmp_path.glob("*-delete"))
    assert region.read(), "a region under way is still there"


def test_a_deletion_that_a_kill_interrupted_is_finished_at_the_start(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    open_log(directory).close(clean=False)
    directory.delete_partition("orders", 0)
    directory.close({}, clean=False)

    open_directory(tmp_path)

    assert not list(tmp_path.glob("*-delete"))


def test_a_topic_with_a_name_like_a_deleted_one_is_not_deleted(tmp_path: Path) -> None:
    mine = tmp_path / "photos-to-delete" / "img.jpg"
    mine.parent.mkdir()
    mine.write_text("x")

    open_directory(tmp_path).purge_deleted()

    assert mine.read_text() == "x"


def test_properties_that_are_no_text_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"\xff\xfe")

    with pytest.raises(DataDirectoryError, match=r"meta\.properties is damaged"):
        open_directory(tmp_path)


def test_a_deleted_log_that_is_still_open_writes_no_checkpoint(tmp_path: Path) -> None:
    """Housekeeping goes over the logs, and one of them is deleted before it comes to write."""
    # given
    directory = open_directory(tmp_path)
    deleted = open_log(directory)
    fill(deleted, 10)
    deleted.flush()
    deleted.delete_records_before(5)
    seen = {("orders", 0): deleted}
    deleted.close(clean=False)
    directory.delete_partition("orders", 0)

    # when, with a new log of that name and without
    for write in (directory.write_start_offsets, directory.write_recovery_points, directory.write_cleaner_offsets):
        write(seen)
    log = open_log(directory)
    directory.write_start_offsets(seen)

    # then
    assert (log.start_offset, log.recovery_point) == (0, 0)
    for name in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
        assert (tmp_path / name).read_text() == "0\n0\n"


def test_what_was_forgotten_is_written_before_a_name_is_used_again(tmp_path: Path) -> None:
    # given a log that was cut and compacted, and deleted
    directory = open_directory(tmp_path)
    log = open_log(directory)
    fill(log, 10)
    log.delete_records_before(5)
    log.first_dirty_offset = 7
    reported = {("orders", 0): log}
    directory.write_start_offsets(reported)
    directory.write_cleaner_offsets(reported)
    log.close(clean=False)
    directory.delete_partition("orders", 0)

    # when
    directory.write_forgotten()

    # then a kill right after the new one was made cannot bring the old one's offsets back
    open_log(directory)
    directory.close({}, clean=False)
    log = open_log(open_directory(tmp_path))
    assert (log.start_offset, log.end_offset, log.first_dirty_offset) == (0, 0, 0)


def test_a_start_offset_that_is_overtaken_is_never_written(tmp_path: Path) -> None:
    """DeleteRecords is answered when the start is on the disk; the minute's checkpoint may have seen an older one."""
    # given somebody who has looked where the log starts, and has not written it yet
    directory = open_directory(tmp_path)
    log = open_log(directory)
    fill(log, 10)
    log.delete_records_before(3)
    reported = {("orders", 0): log}

    def cut_further() -> None:
        log.delete_records_before(7)
        directory.write_start_offsets(reported)

    other = threading.Thread(target=cut_further)

    class Overtaken(dict[tuple[str, int], PartitionLog]):
        def items(self) -> Any:  # Any: a dictionary has a view here
            yield from super().items()
            other.start()
            other.join(0.5)  # as long as it takes if it does not wait

    # when
    directory.write_start_offsets(Overtaken(reported))
    other.join()

    # then
    assert checkpoint.read_offsets(tmp_path / checkpoint.LOG_START_OFFSETS) == {("orders", 0): 7}


def test_the_topic_id_is_kept_as_kafka_writes_it(tmp_path: Path) -> None:
    topic_id = uuid.UUID(int=0x0123_4567_89AB_CDEF_0123_4567_89AB_CDEF)
    assert partition_metadata.read_topic_id(tmp_path) is None

    partition_metadata.write_topic_id(tmp_path, topic_id)

    text = (tmp_path / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w"
    assert partition_metadata.read_topic_id(tmp_path) == topic_id


@pytest.mark.parametrize("content", [b"", bytes(40)])
def test_a_topic_id_that_a_power_cut_swallowed_is_none(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "partition.metadata").write_bytes(content)

    assert partition_metadata.read_topic_id(tmp_path) is None
    assert "partition.metadata is empty" in caplog.text


@pytest.mark.parametrize("text", ["version: 0", "version: 0\ntopic_id: ??", "version: 0\ntopic_id: AAAA"])
def test_a_topic_id_that_cannot_be_read_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)

    with pytest.raises(CorruptLog, match=r"partition\.metadata"):
        partition_metadata.read_topic_id(tmp_path)
