"""The format of a data directory: newer is refused, older is upgraded."""

import json
from pathlib import Path

import pytest

from holdfast.log import disk, format_version
from holdfast.log.data_directory import DataDirectory
from holdfast.log.errors import DataDirectoryError
from holdfast.log.format_version import FORMAT, FORMAT_FILE, upgrade
from tests.unit.log.samples import NOW_MS, TINY, append, contents, sample


def logged(path: Path) -> object:
    return json.loads((path / FORMAT_FILE).read_text())["format"]


def test_a_new_directory_has_our_format(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path / "data", node_id=1).close({})

    assert logged(tmp_path / "data") == FORMAT


def test_a_directory_without_a_format_file_is_upgraded_and_keeps_its_records(tmp_path: Path) -> None:
    # given a directory without the file, with records in it
    directory = DataDirectory.open(tmp_path, node_id=1)
    log = directory.open_log("t", 0, TINY, now_ms=NOW_MS)
    append(log, sample(3))
    stored = contents(log)
    directory.close({("t", 0): log})
    (tmp_path / FORMAT_FILE).unlink()

    # when it is opened
    directory = DataDirectory.open(tmp_path, node_id=1)

    # then it has our format, and all that it held
    assert logged(tmp_path) == FORMAT
    log = directory.open_log("t", 0, TINY, now_ms=NOW_MS)
    assert contents(log) == stored
    directory.close({("t", 0): log})


def test_a_newer_format_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path, node_id=1).close({})
    (tmp_path / FORMAT_FILE).write_text(json.dumps({"format": FORMAT + 1}))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"}

    with pytest.raises(DataDirectoryError, match=f"written by a newer Holdfast .format {FORMAT + 1}"):
        DataDirectory.open(tmp_path, node_id=1)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"} == before
    (tmp_path / FORMAT_FILE).write_text(json.dumps({"format": FORMAT}))
    DataDirectory.open(tmp_path, node_id=1).close({})


@pytest.mark.parametrize("content", ["", "2", "{}", '{"format": "2"}', '{"format": 0}', '{"format": true}'])
def test_a_file_that_says_nothing_is_refused(tmp_path: Path, content: str) -> None:
    DataDirectory.open(tmp_path, node_id=1).close({})
    (tmp_path / FORMAT_FILE).write_text(content)

    with pytest.raises(DataDirectoryError, match="is damaged"):
        DataDirectory.open(tmp_path, node_id=1)


def test_an_upgrade_that_was_killed_is_done_again_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given formats 3 and 4, and an upgrade that is killed before the file says so
    done: list[str] = []
    steps = {**format_version._STEPS, 2: lambda _: done.append("2"), 3: lambda _: done.append("3")}
    monkeypatch.setattr(format_version, "_STEPS", steps)
    monkeypatch.setattr(format_version, "FORMAT", 4)

    def killed(point: str) -> None:
        raise KeyboardInterrupt(point)

    monkeypatch.setattr(disk, "fault", killed)
    with pytest.raises(KeyboardInterrupt):
        upgrade(tmp_path, is_new=False)
    monkeypatch.setattr(disk, "fault", None)

    # when it is opened again
    assert upgrade(tmp_path, is_new=False) == 1

    # then every step was taken again, in order, and never after that
    assert done == ["2", "3", "2", "3"]
    assert logged(tmp_path) == 4
    assert upgrade(tmp_path, is_new=False) == 4
    assert done == ["2", "3", "2", "3"]
