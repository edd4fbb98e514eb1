"""The order in which things are flushed is tested step by step; the device itself need not be waited for."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
