"""Housekeeping in a worker thread beside the event loop."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.broker.housekeeping import SWITCH_SECONDS, Housekeeping
from holdfast.broker.server import Broker


def broker_with(compact: Callable[[int, Callable[[], bool]], None]) -> Broker:
    """One compacted partition, whose log is compacted by this function."""
    partition = SimpleNamespace(config=SimpleNamespace(compacts=True), log=SimpleNamespace(compact=compact))
    broker: Any = SimpleNamespace(topics=SimpleNamespace(partitions=lambda: [partition]), now_ms=lambda: 0)
    return cast("Broker", broker)


def test_threads_take_short_turns_while_a_log_is_compacted_and_only_then() -> None:
    seen: list[float] = []
    usual = sys.getswitchinterval()
    housekeeping = Housekeeping(broker_with(lambda *_: seen.append(sys.getswitchinterval())))

    housekeeping.compact()

    assert seen == [pytest.approx(SWITCH_SECONDS)]
    assert sys.getswitchinterval() == usual > SWITCH_SECONDS


def test_a_compaction_that_fails_leaves_the_turns_as_they_were() -> None:
    def fail(*_: object) -> None:
        raise OSError("no such disk")

    usual = sys.getswitchinterval()

    with pytest.raises(OSError, match="no such disk"):
        Housekeeping(broker_with(fail)).compact()

    assert sys.getswitchinterval() == usual
