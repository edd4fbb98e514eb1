"""Files that are there whole, once, and on the device."""

import errno
import os
from pathlib import Path

import pytest

from holdfast.spark.pipelines.durable_files import Disk
from tests.unit.spark.pipelines.places import ForgetfulNfs, Mortal, WatchedDisk


def test_the_first_creation_wins(tmp_path: Path) -> None:
    assert Disk().create(tmp_path / "a" / "b" / "name", b"first")
    assert not Disk().create(tmp_path / "a" / "b" / "name", b"second")

    assert Disk().read(tmp_path / "a" / "b" / "name") == b"first"
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["name"]


def test_a_link_whose_answer_was_lost_is_ours_and_one_that_another_made_is_not(tmp_path: Path) -> None:
    assert ForgetfulNfs().create(tmp_path / "name", b"first")
    assert not ForgetfulNfs().create(tmp_path / "name", b"first"), "the control: the same bytes, by another"

    assert [path.name for path in tmp_path.iterdir()] == ["name"]


def test_what_begins_with_a_dot_is_no_name(tmp_path: Path) -> None:
    for name in ("b", "a", ".unfinished-1", ".nfs000000000123", ".snapshot"):
        (tmp_path / name).write_bytes(b"")

    assert Disk().names(tmp_path) == ["a", "b"]


def test_a_file_is_synced_before_its_rename_and_the_rename_before_it_counts(tmp_path: Path) -> None:
    steps = Mortal()

    WatchedDisk(steps, with_reads=False).create(tmp_path / "new" / "name", b"content")

    assert [what for what, _ in steps.steps] == [
        "make directory",
        "sync directory",
        "write",
        "sync",
        "link",
        "remove",
        "sync directory",
    ]
    assert [name for what, name in steps.steps if what == "sync directory"] == [tmp_path.name, "new"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="No space left"):
        Disk().create(tmp_path / "name", b"content")
    assert list(tmp_path.iterdir()) == []

    monkeypatch.undo()
    assert Disk().create(tmp_path / "name", b"content")
