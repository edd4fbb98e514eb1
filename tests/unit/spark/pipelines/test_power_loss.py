"""After a power failure, a table has every batch that was reported, and can be read.

A file keeps its content if it was flushed, and its name if its directory was flushed after it got the name. delta-rs
flushes nothing.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.land import delta_table
from holdfast.spark.pipelines.land.delta_entry import LOG
from holdfast.spark.pipelines.location import Location
from tests.unit.spark.pipelines.land_harness import (
    A_DATE_MS,
    TOPIC,
    compaction,
    every,
    land,
    new_writer,
    opened,
    rows_of,
    writing,
)


class Device:
    """Remembers what was flushed."""

    def __init__(self) -> None:
        self._flushed: dict[int, int] = {}
        """The size of each file at its last flush, by inode."""
        self._names: dict[Path, set[str]] = {}

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if stat.S_ISDIR(status.st_mode):
            self._names[path] = {one.name for one in path.iterdir()}
        else:
            self._flushed[status.st_ino] = status.st_size

    def lose_power(self, directory: Path) -> list[str]:
        """Returns the names of the files that have lost something."""
        damaged = []
        for path in sorted(directory.iterdir()):
            status = path.stat()
            if path.name not in self._names.get(directory, set()):
                path.unlink()
            elif self._flushed.get(status.st_ino) != status.st_size:
                path.write_bytes(b"")
            else:
                continue
            damaged.append(path.name)
        return damaged


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, no_device: None) -> Device:
    device = Device()
    monkeypatch.setattr(os, "fsync", device.fsync)
    return device


@pytest.fixture
def table(tmp_path: Path) -> Location:
    """With small files of a closed date."""
    table = Location.parse(tmp_path / "lake")
    for number in range(3):
        land(table, (0, number * 5, number * 5 + 5), at_ms=A_DATE_MS - 20 * 86_400_000)
    return table


def test_entries_of_other_programs_are_durable_before_the_next_batch(table: Location, device: Device) -> None:
    # given a writer, and a program that deletes rows while it runs
    writer, batch = new_writer(table), [OffsetRange(TOPIC, 0, 15, 20)]
    writer._log.ends([(TOPIC, 0)])
    opened(table).delete("offset < 5")

    # when
    landed = writer.land(batch, writing(table))
    damaged = device.lose_power(table.path / LOG)

    # then
    assert landed.conflicts == 1, "the control: it has met the entry"
    assert [name for name in damaged if name.endswith(".json")] == []
    assert rows_of(table) == every((0, 5, 20))


def test_entries_that_appear_while_the_table_is_opened_are_durable_too(
    table: Location, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush_log = delta_table.flush_log

    def then_another(path: Path) -> None:
        flush_log(path)
        monkeypatch.setattr(delta_table, "flush_log", flush_log)
        opened(table).delete("offset < 5")

    monkeypatch.setattr(delta_table, "flush_log", then_another)
    land(table, (0, 15, 20))
    damaged = device.lose_power(table.path / LOG)

    assert [name for name in damaged if name.endswith(".json")] == []
    assert rows_of(table) == every((0, 5, 20))


def test_the_entries_of_a_compaction_are_durable_when_it_returns(table: Location, device: Device) -> None:
    compaction(table, now_s=time.time, grace_s=0).run()
    operations = [entry["operation"] for entry in opened(table).history()]

    damaged = device.lose_power(table.path / LOG)

    assert {"VACUUM START", "VACUUM END"} <= set(operations), "the control: delta-rs has written entries"
    assert damaged == []
    assert rows_of(table) == every((0, 0, 15))
    land(table, (0, 10, 20))
    assert rows_of(table) == every((0, 0, 20))


def test_control_an_entry_of_delta_rs_is_lost_if_nobody_flushes_it(table: Location, device: Device) -> None:
    opened(table).delete("offset < 5")

    assert f"{4:020d}.json" in device.lose_power(table.path / LOG)
