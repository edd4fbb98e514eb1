from __future__ import annotations

import pytest

from tests.client_compat.servers import Server
from tests.groups.topics import make_topic
from tests.spark.conftest import StartQuery
from tests.spark.streaming_queries import RUNNER, processes

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_a_query_that_has_begun_has_its_reader(server: Server, start_query: StartQuery, topic: str) -> None:
    make_topic(server, topic, 1)
    before = processes(RUNNER)

    start_query()  # and `await_started`

    assert len(processes(RUNNER) - before) == 1
