"""The Holdfast broker that tests share; a pytest plugin module."""

from collections.abc import Iterator

import pytest

from tests.support.holdfast_broker import HoldfastBroker


@pytest.fixture(scope="session")
def holdfast() -> Iterator[HoldfastBroker]:
    """One broker for the whole run (one per xdist worker): make topics of your own and leave the rest alone."""
    with HoldfastBroker() as broker:
        yield broker
