"""Room for what makes room: where a disk is full, the reserve becomes the file."""

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.log import disk
from holdfast.log.reserve_file import RESERVE_BYTES, RESERVE_FILE, ReserveFile

IN_THE_RESERVE = ["renamed", "before create", "before write"]


class Killed(BaseException):
    """The end of the process."""


def full_disk(room_bytes: int = 0) -> Callable[[str], None]:
    """Nothing can be written but into the room that a file has already; `room_bytes` are left for a new reserve."""
    seen: list[str] = []

    def fault(point: str) -> None:
        if point == "half written" and seen[-3:] != IN_THE_RESERVE:
            raise OSError(errno.ENOSPC, "No space left on device")
        if point == "before allocate" and not room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        seen.append(point)

    return fault


def room(path: Path) -> int:
    return (path / RESERVE_FILE).stat().st_blocks * 512


@pytest.fixture
def reserve(tmp_path: Path) -> ReserveFile:
    made = ReserveFile(tmp_path)
    made.fill()
    assert room(tmp_path) >= RESERVE_BYTES
    return made


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_a_disk_with_room_leaves_the_reserve_alone(tmp_path: Path, reserve: ReserveFile) -> None:
    before = (tmp_path / RESERVE_FILE).stat().st_ino

    reserve.replace_file(tmp_path / "file", b"content")
    reserve.fill()

    assert (tmp_path / "file").read_bytes() == b"content"
    assert (tmp_path / RESERVE_FILE).stat().st_ino == before
    assert names(tmp_path) == ["file", RESERVE_FILE]


def test_on_a_full_disk_the_reserve_becomes_the_file(
    tmp_path: Path, reserve: ReserveFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"old")

    monkeypatch.setattr(disk, "fault", full_disk())
    reserve.replace_file(tmp_path / "file", b"new")

    assert (tmp_path / "file").read_bytes() == b"new"
    assert names(tmp_path) == ["file"]
    # and it can be used once: there was no room for another
    with pytest.raises(OSError, match="No space left"):
        reserve.replace_file(tmp_path / "file", b"newer")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_new_reserve_is_made_at_once_where_the_old_one_left_room(
    tmp_path: Path, reserve: ReserveFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "fault", full_disk(room_bytes=1))

    for content in (b"one", b"two"):
        reserve.replace_file(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content

    assert room(tmp_path) >= RESERVE_BYTES


def test_it_is_as_large_as_the_disk_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocate, asked = os.posix_fallocate, []

    def small_disk(fd: int, start: int, size: int) -> None:
        asked.append(size)
        if size > RESERVE_BYTES // 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(fd, start, size)

    monkeypatch.setattr(os, "posix_fallocate", small_disk)
    reserve = ReserveFile(tmp_path)
    reserve.fill()

    assert (reserve.room_bytes, names(tmp_path)) == (RESERVE_BYTES // 4, [RESERVE_FILE])
    # and grows when there is more
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    reserve.fill()
    assert reserve.room_bytes == RESERVE_BYTES


def test_a_reserve_without_room_behind_it_is_none(tmp_path: Path) -> None:
    """As after a copy that leaves out what is empty."""
    with (tmp_path / RESERVE_FILE).open("wb") as file:
        file.truncate(RESERVE_BYTES)
    reserve = ReserveFile(tmp_path)
    assert reserve.room_bytes == 0

    reserve.fill()

    assert reserve.room_bytes == RESERVE_BYTES


@pytest.mark.parametrize("code", [errno.EIO, errno.EFBIG, errno.EROFS])
def test_an_error_other_than_a_full_disk_is_raised_and_uses_no_reserve(
    tmp_path: Path, reserve: ReserveFile, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(point: str) -> None:
        if point == "half written":
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk, "fault", refuse)
    with pytest.raises(OSError, match=os.strerror(code)):
        reserve.replace_file(tmp_path / "file", b"content")

    assert reserve.room_bytes == RESERVE_BYTES


def test_what_is_larger_than_the_reserve_is_refused_and_takes_nothing(
    tmp_path: Path, reserve: ReserveFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "fault", full_disk())
    with pytest.raises(OSError, match="No space left"):
        reserve.replace_file(tmp_path / "file", bytes(RESERVE_BYTES + 1))

    assert reserve.room_bytes == RESERVE_BYTES


def test_a_kill_at_any_point_leaves_the_old_file_or_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in itertools.count(1):
        path = tmp_path / f"{number}"
        path.mkdir()
        (path / "file").write_bytes(b"the old content")
        reserve = ReserveFile(path)
        reserve.fill()

        # when the process ends at the n-th point of a write that needs the reserve
        full, left = full_disk(room_bytes=1), itertools.count(1)

        def killed(
            point: str,
            number: int = number,
            full: Callable[[str], None] = full,
            left: "itertools.count[int]" = left,
        ) -> None:
            if next(left) == number:
                raise Killed
            full(point)

        monkeypatch.setattr(disk, "fault", killed)
        try:
            reserve.replace_file(path / "file", b"new")
            was_killed = False
        except Killed:
            was_killed = True
        monkeypatch.setattr(disk, "fault", None)

        # then
        assert (path / "file").read_bytes() in ((b"the old content", b"new") if was_killed else (b"new",))
        again = ReserveFile(path)
        again.fill()
        again.replace_file(path / "file", b"after the kill")
        assert (path / "file").read_bytes() == b"after the kill"
        assert again.room_bytes == RESERVE_BYTES
        if not was_killed:
            assert number > 15
            return
