"""Both servers, with a topic and a group of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.servers import Server
from tests.support.spark_world import World


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    made = World(server)
    yield made
    made.close()
