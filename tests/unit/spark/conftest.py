"""Both servers, with a topic and a group of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client_compat.servers import Server
from tests.support.spark_harness import SparkHarness


@pytest.fixture
def world(server: Server) -> Iterator[SparkHarness]:
    made = SparkHarness(server)
    yield made
    made.close()
