"""Checkpoint files: Kafka's text, and what is made of a broken one."""

from pathlib import Path

import pytest

from holdfast.log import checkpoint, disk


def test_the_text_is_kafkas(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.RECOVERY_POINTS

    checkpoint.write_offsets(path, {("orders", 1): 1498, ("orders", 0): 1500})

    assert path.read_text() == "0\n3\norders 0 1500\norders 1 1498\n#crc32c 0 3779164950\n"
    assert checkpoint.read_offsets(path) == {("orders", 0): 1500, ("orders", 1): 1498}


def test_a_file_that_kafka_wrote_has_no_crc(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.RECOVERY_POINTS
    path.write_text("0\n1\norders 0 1500\n")

    assert checkpoint.read_offsets(path) == {("orders", 0): 1500}


def test_every_changed_digit_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / checkpoint.LOG_START_OFFSETS
    checkpoint.write_offsets(path, {("orders", 0): 1500})
    written = path.read_text()

    for place in range(written.index("1500"), written.index("1500") + 4):
        path.write_text(written[:place] + "7" + written[place + 1 :])
        assert checkpoint.read_offsets(path) == {}
    assert caplog.text.count("CRC does not match") == 4


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


def test_what_is_forgotten_is_in_the_file_until_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.LOG_START_OFFSETS
    checkpoint.write_offsets(path, {("orders", 0): 40, ("orders", 1): 50, ("gone", 0): 60})

    offsets = checkpoint.OffsetCheckpoint(path)
    assert not offsets.names_deleted_partitions
    offsets.forget(("gone", 0))
    offsets.forget(("never", 0))

    assert offsets.offset(("gone", 0)) == 0
    assert offsets.names_deleted_partitions
    assert checkpoint.read_offsets(path)["gone", 0] == 60
    offsets.write({("orders", 1): None})
    assert checkpoint.read_offsets(path) == {("orders", 0): 40}
    assert not offsets.names_deleted_partitions


def test_only_those_that_are_there_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.LOG_START_OFFSETS
    checkpoint.write_offsets(path, {("orders", 0): 40, ("orders", 1): 50})

    offsets = checkpoint.OffsetCheckpoint(path)
    offsets.forget_all_but({("orders", 0)})

    assert ("orders", 0) in offsets
    assert ("orders", 1) not in offsets
    assert offsets.names_deleted_partitions


def test_what_could_not_be_written_is_not_taken_for_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / checkpoint.LOG_START_OFFSETS
    checkpoint.write_offsets(path, {("orders", 0): 40})
    offsets = checkpoint.OffsetCheckpoint(path)
    offsets.forget(("orders", 0))

    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "fault", full)
    with pytest.raises(OSError, match="No space left"):
        offsets.write({})

    assert offsets.names_deleted_partitions
