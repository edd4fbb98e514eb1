"""Concurrent callers share one run of the work."""

from __future__ import annotations

import asyncio
import gc

import pytest

from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.kafka.shared_tasks import SharedTasks
from tests.unit.gateway.kafka.conftest import Run


class Work:
    """Runs until the test says so."""

    def __init__(self) -> None:
        self.runs = 0
        self.result: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> int:
        self.runs += 1
        return await self.result


def test_the_second_caller_gets_the_result_of_the_first(run: Run) -> None:
    async def scenario() -> None:
        shared: SharedTasks[str, int] = SharedTasks()
        work = Work()
        callers = [asyncio.create_task(shared.run("a", work)) for _ in range(3)]
        await asyncio.sleep(0)
        work.result.set_result(7)

        assert await asyncio.gather(*callers) == [7, 7, 7]
        assert work.runs == 1
        assert await shared.run("a", work) == 7
        assert work.runs == 2

    run(scenario())


def test_different_keys_run_at_the_same_time(run: Run) -> None:
    async def scenario() -> None:
        shared: SharedTasks[str, int] = SharedTasks()
        one, other = Work(), Work()
        callers = [asyncio.create_task(shared.run("a", one)), asyncio.create_task(shared.run("b", other))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (one.runs, other.runs) == (1, 1)
        one.result.set_result(1)
        other.result.set_result(2)

        assert await asyncio.gather(*callers) == [1, 2]

    run(scenario())


def test_a_cancelled_caller_leaves_the_work_to_the_others(run: Run) -> None:
    async def scenario() -> None:
        shared: SharedTasks[str, int] = SharedTasks()
        work = Work()
        first = asyncio.create_task(shared.run("a", work))
        second = asyncio.create_task(shared.run("a", work))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        work.result.set_result(7)

        assert await second == 7
        assert first.cancelled()
        assert work.runs == 1

    run(scenario())


def test_a_failure_reaches_every_caller_and_is_not_remembered(run: Run) -> None:
    async def scenario() -> None:
        shared: SharedTasks[str, int] = SharedTasks()
        work = Work()
        callers = [asyncio.create_task(shared.run("a", work)) for _ in range(2)]
        await asyncio.sleep(0)
        work.result.set_exception(KafkaUnreachable("down"))
        outcomes = await asyncio.gather(*callers, return_exceptions=True)

        assert [str(outcome) for outcome in outcomes] == ["down", "down"]
        again = Work()
        again.result.set_result(1)
        assert await shared.run("a", again) == 1

    run(scenario())


def test_a_failure_that_nobody_waits_for_is_not_reported(run: Run) -> None:
    reported = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        shared: SharedTasks[str, int] = SharedTasks()
        work = Work()
        caller = asyncio.create_task(shared.run("a", work))
        await asyncio.sleep(0)
        caller.cancel()
        work.result.set_exception(KafkaUnreachable("down"))
        await asyncio.sleep(0.01)
        del work
        gc.collect()

    run(scenario())
    assert reported == []


def test_closing_ends_the_work_and_its_callers(run: Run) -> None:
    async def scenario() -> None:
        shared: SharedTasks[str, int] = SharedTasks()
        caller = asyncio.create_task(shared.run("a", Work()))
        await asyncio.sleep(0)
        await shared.close()

        with pytest.raises(KafkaUnreachable, match="closed"):
            await caller
        with pytest.raises(KafkaUnreachable, match="closed"):
            await shared.run("a", Work())

    run(scenario())
