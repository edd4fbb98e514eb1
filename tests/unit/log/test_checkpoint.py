"""Checkpoint files: Kafka's text, and what is made of a broken one."""

from pathlib import Path

import pytest

from holdfast.log import checkpoint


def test_the_text_is_kafkas(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.RECOVERY_POINTS

    checkpoint.write_offsets(path, {("orders", 1): 1498, ("orders", 0): 1500})

    assert path.read_text() == "0\n2\norders 0 1500\norders 1 1498\n"
    assert checkpoint.read_offsets(path) == {("orders", 0): 1500, ("orders", 1): 1498}


def test_epochs_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.LEADER_EPOCHS

    checkpoint.write_epochs(path, [(0, 0), (3, 17)])

    assert path.read_text() == "0\n2\n0 0\n3 17\n"
    assert checkpoint.read_epochs(path) == [(0, 0), (3, 17)]


def test_a_missing_file_is_empty(tmp_path: Path) -> None:
    assert checkpoint.read_offsets(tmp_path / "none") == {}
    assert checkpoint.read_epochs(tmp_path / "none") == []


@pytest.mark.parametrize(
    "text", ["", "0", "0\n", "0\n2\norders 0 1\n", "1\n0\n", "x\ny\n", "0\n1\norders 0\n", "0\n1\norders 0 x\n", "\xff"]
)
def test_a_torn_file_is_ignored(tmp_path: Path, text: str) -> None:
    path = tmp_path / "torn"
    path.write_bytes(text.encode("latin-1"))

    assert checkpoint.read_offsets(path) == {}
    assert checkpoint.read_epochs(path) == []


def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    checkpoint.write_offsets(tmp_path / "offsets", {})

    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]
