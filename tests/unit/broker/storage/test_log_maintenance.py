"""Housekeeping in a worker thread beside the event loop."""

import asyncio
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.config.dynamic import DynamicBrokerConfig
from holdfast.broker.storage.log_maintenance import SWITCH_SECONDS, LogMaintenance
from holdfast.log import DataDirectory
from holdfast.log.errors import CorruptLog
from holdfast.log.retention import DeletedSegment


def partition_with(**log: Callable[..., Any]) -> SimpleNamespace:
    """A compacted partition, whose log does only this."""
    return SimpleNamespace(config=SimpleNamespace(compacts=True), log=SimpleNamespace(**log))


def maintenance_of(*partitions: SimpleNamespace) -> LogMaintenance:
    topics: Any = SimpleNamespace(partitions=lambda: list(partitions))
    return LogMaintenance(DynamicBrokerConfig(BrokerConfig()), cast("DataDirectory", None), topics, now_ms=lambda: 0)


def maintenance_with(compact: Callable[[int, Callable[[], bool]], None]) -> LogMaintenance:
    """One compacted partition, whose log is compacted by this function."""
    return maintenance_of(partition_with(compact=compact))


def test_threads_take_short_turns_while_a_log_is_compacted_and_only_then() -> None:
    seen: list[float] = []
    usual = sys.getswitchinterval()
    housekeeping = maintenance_with(lambda *_: seen.append(sys.getswitchinterval()))

    housekeeping.compact()

    assert seen == [pytest.approx(SWITCH_SECONDS)]
    assert sys.getswitchinterval() == usual > SWITCH_SECONDS


def test_a_compaction_that_fails_leaves_the_turns_as_they_were() -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no such luck")

    usual = sys.getswitchinterval()

    with pytest.raises(RuntimeError, match="no such luck"):
        maintenance_with(fail).compact()

    assert sys.getswitchinterval() == usual


@pytest.mark.parametrize("error", [OSError("no such disk"), CorruptLog("no such batch")])
def test_one_log_that_fails_keeps_no_other_from_being_looked_after(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    looked_after: list[str] = []

    def fail(*_: object) -> None:
        raise error

    def compact(*_: object) -> None:
        looked_after.append("compacted")

    def apply_retention(_: int) -> list[DeletedSegment]:
        looked_after.append("retained")
        return []

    bad = partition_with(compact=fail, apply_retention=fail)
    good = partition_with(compact=compact, apply_retention=apply_retention)
    housekeeping = maintenance_of(bad, good)

    housekeeping.apply_retention()
    housekeeping.compact()

    assert looked_after == ["retained", "compacted"]
    assert [record.message for record in caplog.records] == [str(error)] * 2


def test_work_that_fails_in_an_unknown_way_is_logged_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    done_again = threading.Event()
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("nobody has thought of this")
        done_again.set()

    async def scenario() -> None:
        housekeeping = maintenance_of()
        every = asyncio.create_task(housekeeping._every(lambda: 0.0, work))
        try:
            assert await asyncio.to_thread(done_again.wait, 60)
        finally:
            every.cancel()
            await asyncio.gather(every, *housekeeping._jobs, return_exceptions=True)

    asyncio.run(scenario())

    (reported,) = caplog.records
    assert reported.exc_info is not None
    assert str(reported.exc_info[1]) == "nobody has thought of this"
