"""The order in which things are flushed is tested step by step; the device itself need not be waited for. The S3 is an
emulator, one for all tests of a process."""

import os
from collections.abc import Iterator

import pytest

from tests.support.s3_emulator import S3Emulator, s3_emulator


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Emulator]:
    with s3_emulator() as emulator:
        yield emulator
