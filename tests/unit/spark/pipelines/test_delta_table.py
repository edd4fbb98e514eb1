"""The table through delta-rs: what it must not have, how its log is listed, and its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from holdfast.client.errors import ConfigError
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.errors import Unwritable
from holdfast.spark.pipelines.land import delta_table
from holdfast.spark.pipelines.land.delta_entry import LOG, entry_name
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import open_files
from tests.support.s3_emulator import S3Emulator
from tests.unit.spark.pipelines.land_harness import (
    TOPIC,
    compaction,
    end_of,
    every,
    land,
    new_writer,
    opened,
    rows_of,
    writing,
)

RETENTION = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}


@pytest.fixture(params=["disk", "s3"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "disk":
        return Location.parse(tmp_path / "lake")
    s3: S3Emulator = request.getfixturevalue("s3")
    return Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options)


@pytest.fixture
def on_disk(tmp_path: Path) -> Location:
    """With several entries."""
    location = Location.parse(tmp_path / "lake")
    for number in range(4):
        land(location, (0, number, number + 1))
    return location


# -- properties --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_running", [False, True])
def test_a_table_whose_transactions_expire_is_refused(table: Location, is_running: bool) -> None:
    """A partition whose transaction has expired looks like a new one, and would be landed again."""
    # given
    writer = new_writer(table)
    first, second = [OffsetRange(TOPIC, 0, 0, 10)], [OffsetRange(TOPIC, 0, 10, 20)]
    writer.land(first, writing(table))

    # when another program sets the property
    opened(table).alter.set_table_properties(RETENTION)
    assert end_of(table) is None, "the control: delta-rs does not see the transaction any more"

    # then a new writer is refused, and so is a running one, also when it tries again
    for _ in range(2):
        by = writer if is_running else new_writer(table)
        with pytest.raises(ConfigError, match=r"setTransactionRetentionDuration .* would be landed twice; land the"):
            by.land(second if is_running else first, writing(table))
    assert rows_of(table) == every((0, 0, 10))


def test_a_property_that_is_set_while_the_table_is_opened_is_seen(
    on_disk: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_table = delta_table.check_table

    def then_set(table: DeltaTable, location: Location) -> None:
        check_table(table, location)
        monkeypatch.setattr(delta_table, "check_table", check_table)
        opened(location).alter.set_table_properties(RETENTION)

    monkeypatch.setattr(delta_table, "check_table", then_set)

    with pytest.raises(ConfigError, match="setTransactionRetentionDuration"):
        land(on_disk, (0, 0, 4))


# -- lists of the log --------------------------------------------------------------------------------------------------


class HidesAnEntry:
    """The log as delta-rs may list it while entries are created: one is missing, and the next one is there. It is
    complete again after so many pauses."""

    def __init__(self, table: Location, monkeypatch: pytest.MonkeyPatch, pauses: int) -> None:
        self._entry = table.path / entry_name(2)
        self._hidden = table.path / "hidden"
        self._left = pauses
        monkeypatch.setattr(time, "sleep", self._pause)

    def __enter__(self) -> None:
        self._entry.rename(self._hidden)

    def _pause(self, _seconds: float) -> None:
        self._left -= 1
        if self._left == 0:
            self._hidden.rename(self._entry)

    def __exit__(self, *_: object) -> None:
        if self._hidden.exists():
            self._hidden.rename(self._entry)


def compact(table: Location) -> None:
    compaction(table, now_s=time.time)._delete_unneeded()


@pytest.mark.parametrize(
    "use",
    [
        lambda table: DeltaLog(table).ends([(TOPIC, 0)]),
        lambda table: DeltaLog(table)._check_table(),
        delta_table.write_checkpoint,
        compact,
    ],
    ids=["load", "check", "checkpoint", "compact"],
)
def test_a_log_that_was_listed_while_it_grew_is_listed_again(
    on_disk: Location, monkeypatch: pytest.MonkeyPatch, use: Callable[[Location], object]
) -> None:
    with HidesAnEntry(on_disk, monkeypatch, pauses=100), pytest.raises(Unwritable, match="contiguous commit files"):
        use(on_disk)
    with HidesAnEntry(on_disk, monkeypatch, pauses=2):
        use(on_disk)


@pytest.mark.parametrize("use", [delta_table.write_checkpoint, compact], ids=["checkpoint", "compact"])
def test_a_checkpoint_of_a_log_that_grows_is_written_again(
    on_disk: Location, monkeypatch: pytest.MonkeyPatch, use: Callable[[Location], object]
) -> None:
    """The table was opened, and entries are created when delta-rs lists the log for the checkpoint."""
    create_checkpoint, failures = DeltaTable.create_checkpoint, [1, 2]

    def grows(table: DeltaTable) -> None:
        if failures:
            failures.pop()
            raise DeltaError("Kernel error: Expected contiguous commit files, but found gap: ParsedLogPath")
        create_checkpoint(table)

    monkeypatch.setattr(DeltaTable, "create_checkpoint", grows)
    use(on_disk)

    assert failures == []
    assert (on_disk.path / LOG / "_last_checkpoint").exists()


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_fails_is_a_warning(
    on_disk: Location, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with HidesAnEntry(on_disk, monkeypatch, pauses=100):
        DeltaLog(on_disk)._write_checkpoint()

    (warning,) = caplog.messages
    assert warning.startswith("could not write a checkpoint of the table's log; a later one will do")


def test_a_writer_writes_checkpoints_and_another_one_starts_from_them(
    table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    monkeypatch.setattr(delta_table, "CHECKPOINT_INTERVAL", 3)
    writer = new_writer(table)
    for number in range(7):
        batch = [OffsetRange(TOPIC, 0, number * 2, number * 2 + 2), OffsetRange(TOPIC, 1, number, number + 1)]
        writer.land(batch, writing(table))
    writer._log.close()

    # when the entries before the checkpoint are gone, so that it is needed
    files = open_files(table)
    checkpoint = min(name for name in files.names(LOG) if name.endswith(".checkpoint.parquet"))
    assert files.read(f"{LOG}/_last_checkpoint") is not None
    for name in files.names(LOG):
        if name < checkpoint:
            files.remove(f"{LOG}/{name}")

    # then
    ends = DeltaLog(table).ends([(TOPIC, at) for at in range(3)])
    assert ends == {(TOPIC, 0): 14, (TOPIC, 1): 7, (TOPIC, 2): None}
    land(table, (0, 10, 16), (1, 7, 9))
    assert rows_of(table) == every((0, 0, 16), (1, 0, 9))
