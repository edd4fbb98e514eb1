"""A broker on files of the test's own."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.handler_broker import HandlerBroker


@pytest.fixture
def broker_with(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], HandlerBroker]]:
    """Makes the broker with settings under Kafka's names."""
    made: list[HandlerBroker] = []

    def make(settings: Mapping[str, str]) -> HandlerBroker:
        made.append(HandlerBroker(tmp_path / f"data-{len(made)}", settings))
        return made[-1]

    yield make
    for broker in made:
        broker.die()


@pytest.fixture
def broker(broker_with: Callable[[Mapping[str, str]], HandlerBroker]) -> HandlerBroker:
    return broker_with({})
