"""A full disk is logged once, and its end is logged once."""

import errno
import logging
import time
from pathlib import Path

import pytest

from holdfast.broker.storage.disk_health import RECOVERED_AFTER_SECONDS, DiskHealth
from holdfast.log import StorageError


def refusal(number: int) -> StorageError:
    return StorageError("append to", Path("t-0"), OSError(number, "the reason"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_logged_when_it_begins_and_when_it_ends(
    number: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    disk = DiskHealth()

    for _ in range(100):
        disk.write_failed(refusal(number))
        disk.write_ok()
    assert disk.is_full, "what is small may still have room"
    later = time.monotonic() + RECOVERED_AFTER_SECONDS
    monkeypatch.setattr("holdfast.broker.storage.disk_health.time.monotonic", lambda: later)
    disk.write_ok()

    assert not disk.is_full
    assert [(record.levelname, record.message.split(";")[0]) for record in caplog.records] == [
        ("ERROR", "disk full"),
        ("INFO", "disk has room again"),
    ]
    assert vars(caplog.records[-1])["fields"]["refused_writes"] == 100
    disk.write_failed(refusal(number))
    assert len(caplog.records) == 3, "the next time it is logged again"


def test_another_failure_is_logged_each_time(caplog: pytest.LogCaptureFixture) -> None:
    disk = DiskHealth()

    for _ in range(3):
        disk.write_failed(refusal(errno.EIO))

    assert not disk.is_full
    assert [record.message for record in caplog.records] == ["write failed"] * 3
