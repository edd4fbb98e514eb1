"""Both servers, with groups that form quickly, and names that no other test uses."""

import uuid

import pytest

from tests.support.quick_brokers import BOTH_SERVERS, QUICK, disposable_server, own_broker, server

__all__ = ["BOTH_SERVERS", "QUICK", "disposable_server", "own_broker", "server"]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"
