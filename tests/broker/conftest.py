"""What the tests of a running broker share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.expected_log import ExpectedLog
from tests.support.holdfast_broker import HoldfastBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[HoldfastBroker]:
    """One broker for the tests of a module, each with topics of its own."""
    with HoldfastBroker() as started:
        yield started


@pytest.fixture
def expected_log(broker: HoldfastBroker) -> ExpectedLog:
    return ExpectedLog(broker)


@pytest.fixture
def data_path() -> Iterator[Path]:
    """In memory where there is such a place: a kill, unlike a power cut, spares what the system holds."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=memory if memory.is_dir() else None) as path:
        yield Path(path)
