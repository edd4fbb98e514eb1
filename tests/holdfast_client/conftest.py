"""Both servers, with groups that form quickly, and names that no other test uses."""

import uuid
from collections.abc import Iterator

import pytest

from tests.holdfast_client.pausing_proxy import PausingProxy
from tests.holdfast_client.proxied_broker import ProxiedBroker
from tests.support.quick_brokers import BOTH_SERVERS, QUICK, disposable_server, own_broker, server

__all__ = ["BOTH_SERVERS", "QUICK", "disposable_server", "own_broker", "server"]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module", params=BOTH_SERVERS)
def proxied(request: pytest.FixtureRequest) -> Iterator[ProxiedBroker]:
    """A broker of the module's own, which is reached through a wire that a test can hold."""
    with PausingProxy() as wire:
        advertised = {"advertised.listeners": f"PLAINTEXT://{wire.bootstrap}"}
        with own_broker(request, advertised) as broker:
            wire.forward_to(broker.address)
            yield ProxiedBroker(broker, wire)
