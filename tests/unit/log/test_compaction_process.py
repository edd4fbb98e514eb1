"""Compaction in a process of its own: the same log as in a thread, and whatever befalls the process costs nothing."""

from __future__ import annotations

import errno
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import BinaryIO, Final

import pytest

from holdfast.log import compaction_process
from holdfast.log.compaction import Compacted
from holdfast.log.compaction_frames import Frame, FrameBuffer
from holdfast.log.compaction_process import CompactionSweep
from holdfast.log.errors import CompactionFailed, CorruptLog, StorageError
from holdfast.log.partition_log import PartitionLog
from holdfast.wire.compression import Codec
from tests.unit.log.keyed_logs import COMPACT, HOUR_MS, History, check, found, keyed, shape
from tests.unit.log.samples import NOW_MS, append, open_log

LARGER: Final = replace(COMPACT, segment_bytes=20_000)


class Started:
    """The processes that were started for compactions."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def are_gone(self) -> bool:
        return all(process.returncode is not None for process in self.processes)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pids[-1], number)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Every pass has a process; they are noted."""
    found, start = Started(), compaction_process._started

    def noted(errors: int) -> subprocess.Popen[bytes]:
        process = start(errors)
        found.processes.append(process)
        return process

    monkeypatch.setattr(compaction_process, "WORTH_A_PROCESS_BYTES", 0)
    monkeypatch.setattr(compaction_process, "_started", noted)
    return found


def filled(path: Path, rounds: int = 60) -> tuple[PartitionLog, History]:
    path.mkdir(exist_ok=True)
    log, history = open_log(path / "t-0", LARGER), History()
    for number in range(rounds):
        history.put(log, [(b"key-%d" % key, b"value %d of %d " % (number, key) * 20) for key in range(5)])
    assert log.segment_count > 4
    return log, history


def when_it_writes(log: PartitionLog, act: Callable[[], bool | None]) -> Callable[[], bool]:
    """For `compact` to ask: acts once, when the first new file is there and the process is about to be notified of
    it."""
    done: list[bool] = []

    def ask() -> bool:
        if not done and any(log.directory.glob("*.cleaned")):
            done.append(bool(act()))
        return any(done)

    return ask


def files(log: PartitionLog) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log.directory.iterdir()}


# The same result


def random_log(path: Path, seed: int) -> PartitionLog:
    """Every codec, deletions, idempotent producers, keys of any length."""
    draw = random.Random(seed)
    log = open_log(path / "t-0", replace(LARGER, segment_bytes=draw.choice([800, 2_000, 4_000])))
    sequences = dict.fromkeys(range(3), 0)
    for _ in range(draw.randint(80, 150)):
        producer = draw.randrange(3)
        pairs = [
            (
                bytes([draw.randrange(20)]) * draw.choice([1, 40]),
                draw.choice([None, draw.randbytes(draw.randrange(90))]),
            )
            for _ in range(draw.randint(1, 5))
        ]
        batch = keyed(
            pairs,
            timestamp=NOW_MS + draw.randrange(1000),
            codec=draw.choice(list(Codec)),
            producer_id=producer,
            sequence=sequences[producer],
        )
        append(log, batch)
        sequences[producer] += len(pairs)
    assert log.segment_count > 2
    return log


def two_passes(log: PartitionLog) -> list[Compacted | None]:
    """The second one drops deletions and merges."""
    first = log.compact(NOW_MS)
    for number in range(10):
        append(log, keyed([(b"more", b"%d" % number * 600)]))
    return [first, log.compact(NOW_MS + 2 * HOUR_MS)]


@pytest.mark.parametrize("seed", range(4))
def test_a_process_leaves_the_same_files_as_a_thread(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # given one log twice
    log = random_log(tmp_path, seed)
    log.close()
    shutil.copytree(log.directory, tmp_path / "copy" / "t-0")
    of_process, of_thread = (open_log(path / "t-0", log.config, clean=True) for path in (tmp_path, tmp_path / "copy"))

    # when one is compacted by a process and the other is not
    done_by_process = two_passes(of_process)
    assert len(started.pids) == 2
    monkeypatch.setattr(compaction_process, "WORTH_A_PROCESS_BYTES", sys.maxsize)
    done_by_thread = two_passes(of_thread)

    # then
    assert len(started.pids) == 2
    assert done_by_process == done_by_thread
    assert None not in done_by_process
    assert found(of_process) == found(of_thread)
    assert of_process.max_timestamp() == of_thread.max_timestamp()
    assert of_process.offset_for_timestamp(NOW_MS + 500) == of_thread.offset_for_timestamp(NOW_MS + 500)
    assert files(of_process) == files(of_thread)
    of_process.close()
    of_thread.close()
    assert files(of_process) == files(of_thread)


def test_the_limit_on_memory_holds_there_too(tmp_path: Path, started: Started) -> None:
    log, history = filled(tmp_path)
    log.config = replace(log.config, compaction_memory_bytes=1)

    first = log.compact(NOW_MS)

    assert first is not None
    assert first.first_dirty_offset < log.segments[-1].base_offset, "there was no room for more keys"
    check(log, history)


def test_little_is_compacted_without_a_process(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_process, "WORTH_A_PROCESS_BYTES", 50_000)
    log, history = filled(tmp_path)

    assert log.compact(NOW_MS) is not None
    assert started.pids, "more than that is"
    check(log, history)

    append(log, keyed([(b"key", b"x" * 15_000)]))
    append(log, keyed([(b"key", b"y" * 15_000)]))
    assert log.compact(NOW_MS) is not None
    assert len(started.pids) == 1


def test_small_logs_that_follow_each_other_share_a_process(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given four logs, of which two together are worth a process
    logs = [filled(tmp_path / name) for name in "abcd"]
    size = sum(segment.size for segment in logs[0][0].segments[:-1])
    monkeypatch.setattr(compaction_process, "WORTH_A_PROCESS_BYTES", 2 * size)

    # when
    with CompactionSweep() as sweep:
        assert logs[0][0].compact(NOW_MS, sweep=sweep) is not None
        assert started.pids == []
        for log, _ in logs[1:]:
            assert log.compact(NOW_MS, sweep=sweep) is not None
            assert len(started.pids) == 1
            assert not started.are_gone()

    # then
    assert started.are_gone()
    for log, history in logs:
        check(log, history)


def test_after_a_failure_the_next_log_of_a_sweep_gets_a_new_process(tmp_path: Path, started: Started) -> None:
    (killed, _), (log, history) = (filled(tmp_path / name) for name in "ab")

    with CompactionSweep() as sweep:
        with pytest.raises(CompactionFailed, match="SIGKILL"):
            killed.compact(NOW_MS, when_it_writes(killed, lambda: started.send(signal.SIGKILL)), sweep)
        assert started.are_gone()

        assert log.compact(NOW_MS, sweep=sweep) is not None

    assert len(started.pids) == 2
    assert started.are_gone()
    check(log, history)


# Giving up


def test_a_pass_that_is_stopped_ends_its_process(tmp_path: Path, started: Started) -> None:
    log, history = filled(tmp_path)

    def stop() -> bool:
        started.send(signal.SIGSTOP)  # so that it is certainly not done
        return True

    assert log.compact(NOW_MS, when_it_writes(log, stop)) is None

    assert started.are_gone()
    assert shape(log).others == []
    assert log.first_dirty_offset == 0
    check(log, history)
    assert log.compact(NOW_MS) is not None, "the control: nobody stops it"
    check(log, history)


def test_a_process_that_is_terminated_gives_the_pass_up(tmp_path: Path, started: Started) -> None:
    log, history = filled(tmp_path)

    assert log.compact(NOW_MS, when_it_writes(log, lambda: started.send(signal.SIGTERM))) is None

    assert started.are_gone()
    assert shape(log).others == []
    check(log, history)


def test_the_process_ignores_ctrl_c_and_has_low_priority(tmp_path: Path, started: Started) -> None:
    log, _ = filled(tmp_path)
    seen: list[tuple[int, int]] = []

    def look() -> None:
        pid = started.pids[0]
        assert os.getsid(pid) == os.getsid(0)
        seen.append((os.getpgid(pid), os.getpriority(os.PRIO_PROCESS, pid)))

    assert log.compact(NOW_MS, when_it_writes(log, look)) is not None

    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert seen == [(started.pids[0], min(ours + 10, 19))]


# Failures of the process


def test_a_process_that_is_killed_costs_the_pass_and_never_the_broker(tmp_path: Path, started: Started) -> None:
    log, history = filled(tmp_path)
    before = files(log)

    # when it is killed again and again
    for number in range(1, compaction_process.MAX_FAILURES + 2):
        with pytest.raises(CompactionFailed, match=r"cannot compact .*t-0: its process was ended by SIGKILL"):
            log.compact(NOW_MS, when_it_writes(log, lambda: started.send(signal.SIGKILL)))

        # then the log is as it was; nobody tries in a thread what may have ended for lack of memory
        assert len(started.pids) == number
        assert {name: content for name, content in files(log).items() if name in before} == before
        assert shape(log).others == []

    # and the next pass does it
    assert log.compact(NOW_MS) is not None
    check(log, history)


def test_a_process_that_ends_by_itself_is_given_up_after_some_times(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # given a process that says nonsense when it has begun
    log, history = filled(tmp_path)
    feed = FrameBuffer.feed

    def nonsense(buffer: FrameBuffer, data: bytes) -> object:
        frames = list(feed(buffer, data))
        if any("end_offset" in frame.message for frame in frames):
            raise ValueError("no frame")
        return iter(frames)

    monkeypatch.setattr(FrameBuffer, "feed", nonsense)
    for _ in range(compaction_process.MAX_FAILURES):
        with pytest.raises(CompactionFailed, match="no frame"):
            log.compact(NOW_MS)

    # when it is the next one's turn
    assert log.compact(NOW_MS) is not None

    # then it was done here
    (line,) = caplog.records
    assert line.__dict__["fields"]["reason"] == "its process failed 3 times in a row"
    assert len(started.pids) == compaction_process.MAX_FAILURES
    assert started.are_gone()
    check(log, history)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (None, "No such file or directory"),
        ("echo 'no module of that name' >&2; exit 3", "its process ended with exit code 3: no module of that name"),
        ("echo 'hello, I am another program'; exec sleep 60", "hello, I am another"),
        ("exec sleep 60", "its process said nothing for 0.3 s"),
    ],
)
def test_where_no_process_can_be_started_the_pass_is_done_here(
    tmp_path: Path,
    started: Started,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    program: str | None,
    reason: str,
) -> None:
    log, history = filled(tmp_path)
    python = str(tmp_path / "missing") if program is None else script(tmp_path / "python", program)
    monkeypatch.setattr(sys, "executable", python)
    if "said nothing" in reason:
        monkeypatch.setattr(compaction_process, "_START_SECONDS", 0.3)

    assert log.compact(NOW_MS) is not None

    (line,) = [record for record in caplog.records if record.name == "holdfast.log.compaction_process"]
    assert line.levelno == logging.WARNING
    assert reason in line.__dict__["fields"]["reason"]
    assert started.are_gone()
    check(log, history)


def test_what_lies_in_the_current_directory_is_not_imported(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("json.py", "holdfast.py", "logging.py"):
        (tmp_path / name).write_text("raise SystemExit('a unknown')")
    monkeypatch.chdir(tmp_path)
    log, _ = filled(Path())

    assert log.compact(NOW_MS) is not None

    assert started.pids
    assert caplog.records == []


# What it finds on the disk


def test_a_full_disk_is_the_same_error_as_in_a_thread(tmp_path: Path, started: Started) -> None:
    # given a limit on file sizes that the first new segment reaches
    log, history = filled(tmp_path)
    append(log, keyed([(b"once", b"x" * 10_000)]))
    history.records += [record._replace(offset=log.end_offset - 1) for record in found(log)[-1:]]
    log.close()
    log = open_log(log.directory, LARGER, clean=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))

    # when
    try:
        with pytest.raises(StorageError, match=r"cannot compact .*t-0: File too large") as refusal:
            log.compact(NOW_MS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    # then nothing is left of it, and the next pass does it
    assert refusal.value.errno == errno.EFBIG
    assert started.pids
    assert started.are_gone()
    assert shape(log).others == []
    assert log.compact(NOW_MS) is not None
    check(log, history)


def test_a_batch_that_cannot_be_read_is_logged_as_in_a_thread(
    tmp_path: Path, started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    log, _ = filled(tmp_path)
    path = log.segments[0].file.path
    data = bytearray(path.read_bytes())
    data[data.index(b"value")] ^= 1
    path.write_bytes(data)

    assert log.compact(NOW_MS) is not None

    assert started.pids
    (line,) = caplog.records
    assert (line.name, line.levelno) == ("holdfast.log.compaction", logging.WARNING)
    assert line.getMessage() == f"{path}: compaction leaves the batch at byte 0 as it is: its CRC does not match"


def test_a_segment_with_garbage_in_it_is_not_compacted(tmp_path: Path, started: Started) -> None:
    log, _ = filled(tmp_path)
    path = log.segments[1].file.path
    data = bytearray(path.read_bytes())
    data[16] = 0  # the magic of the first batch
    path.write_bytes(data)

    with pytest.raises(CorruptLog, match=r"cannot compact .*t-0: no batch at byte 0"):
        log.compact(NOW_MS)

    assert started.are_gone()
    assert path.read_bytes() == data
    assert shape(log).others == []


# Without its broker


def logged(log: PartitionLog, *questions: Frame, broker_pid: int) -> list[Frame]:
    """What the process answers if this is all it gets before the pipe is closed."""
    task = {
        "broker_pid": broker_pid,
        "directory": str(log.directory),
        "config": asdict(log.config),
        "now_ms": NOW_MS,
        "segments": [(segment.base_offset, segment.size) for segment in log.segments[:-1]],
    }
    text = b"".join(frame.encode() for frame in (Frame(task), *questions))
    child = [sys.executable, "-P", "-m", "holdfast.log.compaction_child"]
    done = subprocess.run(child, input=text, capture_output=True, check=True, timeout=60)
    assert done.stderr == b""
    return list(FrameBuffer().feed(done.stdout))


def test_without_its_broker_the_process_ends_and_writes_nothing(tmp_path: Path) -> None:
    # given a file to write into, and a process that is asked to
    log, _ = filled(tmp_path)
    log.flush()
    into = tmp_path / "t-0" / f"{0:020d}.log.cleaned"
    into.touch()
    questions = Frame({"read_keys": 0}), Frame({"rewrite": 0, "inode": into.stat().st_ino})

    # when nobody is at the other end of its pipe any more, or the broker was gone before it looked
    assert logged(log, *questions, broker_pid=os.getpid()) == [Frame({"ready": True})]
    assert logged(log, *questions, broker_pid=1 << 30) == []

    # then
    assert into.stat().st_size == 0


def test_the_process_writes_into_no_file_but_the_one_it_was_given(tmp_path: Path, started: Started) -> None:
    # given a file that has been replaced by another of its name when the process is notified of it
    log, _ = filled(tmp_path)
    held: list[BinaryIO] = []

    def replaced() -> None:
        (path,) = log.directory.glob("*.cleaned")
        path.rename(path.with_suffix(".kept"))  # so that its inode is not given to the next
        path.touch()
        held.append(path.open("rb"))

    # when
    with pytest.raises(StorageError, match="the file was replaced"):
        log.compact(NOW_MS, when_it_writes(log, replaced))

    # then
    assert started.are_gone()
    with held[0] as unknown:
        assert unknown.read() == b""
