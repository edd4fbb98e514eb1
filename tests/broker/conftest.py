"""What the tests of a running broker share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.trouble import Trouble
from tests.support.holdfast_broker import HoldfastBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[HoldfastBroker]:
    """One broker for the tests of a module, each with topics of its own."""
    with HoldfastBroker() as started:
        yield started


@pytest.fixture
def trouble(broker: HoldfastBroker) -> Trouble:
    return Trouble(broker)
