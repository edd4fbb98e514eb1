"""For all tests of the log."""

import os

import pytest


@pytest.fixture
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written outlives the process without a sync; only a power cut would show the difference."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
