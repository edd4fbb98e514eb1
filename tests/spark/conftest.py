"""Both servers, names that no other test uses, and streaming queries that end with their test."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.client_compat.servers import Server
from tests.spark.streaming_queries import PlainMember, Shape, StreamQuery, as_it_is
from tests.support.quick_brokers import BOTH_SERVERS, QUICK, disposable_server, own_broker, server

__all__ = ["BOTH_SERVERS", "QUICK", "disposable_server", "own_broker", "server"]

StartQuery = Callable[..., StreamQuery]
StartPlain = Callable[..., PlainMember]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    """What the test has started ends with it, the last one first."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start_query(
    spark: Any, server: Server, group: str, topic: str, tmp_path: Path, ending: ExitStack
) -> Iterator[StartQuery]:
    """Start a query of the test's group and topic, with a checkpoint of its own. If it is `held`, its first batch does
    not end before its gate is opened."""

    def start(
        *, trigger: dict[str, str | bool] | None = None, shape: Shape = as_it_is, held: bool = False, **options: Any
    ) -> StreamQuery:
        wanted = {"kafka.bootstrap.servers": server.bootstrap, "kafka.group.id": group, "subscribe": topic} | options
        query = StreamQuery(spark, wanted, tmp_path / uuid.uuid4().hex, shape)
        if held:
            query.gate.clear()
        ending.callback(query.end)
        query.start(trigger)
        return query

    yield start


@pytest.fixture
def start_plain(server: Server, group: str, topic: str, ending: ExitStack) -> Iterator[StartPlain]:
    """Start a consumer of the test's group and topic: confluent-kafka's, or Holdfast's."""

    def start(kind: str = "confluent", **settings: Any) -> PlainMember:
        member = PlainMember(kind, server.bootstrap, group, topic, settings)
        ending.callback(member.stop)
        return member

    yield start
