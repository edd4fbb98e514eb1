"""Long work in slices: what is short is done at once, what is long lets everybody else in."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from holdfast.broker.util.slices import (
    MAX_SECONDS_WITHOUT_GC,
    SLICE_SECONDS,
    UNTHROTTLED_SECONDS,
    SliceScheduler,
    Work,
)


class Account:
    throttled_until = 0.0


class Clock:
    """The scheduler's time. It moves only when work is done, so that a busy machine changes nothing."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()
STEP_SECONDS = SLICE_SECONDS / 20


@pytest.fixture(autouse=True)
def _moved_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.broker.util.slices.monotonic", CLOCK)


def busy(seconds: float) -> Work[str]:
    """Works for this long, with many places to pause."""
    until = CLOCK.now + seconds
    while CLOCK.now < until:
        CLOCK.now += STEP_SECONDS
        yield
    return "done"


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


async def rounds_until(task: asyncio.Task[Any]) -> int:
    """How many rounds the loop makes before the task is done."""
    count = 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    return count


def test_short_work_is_done_at_once() -> None:
    def short() -> Work[int]:
        yield
        yield
        return 7

    assert SliceScheduler().start(short()) == 7


def test_an_error_in_it_is_the_callers() -> None:
    def failing() -> Work[int]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        SliceScheduler().start(failing())


def test_long_work_lets_others_in() -> None:
    async def scenario() -> None:
        work = SliceScheduler().start(busy(0.1))
        assert isinstance(work, Coroutine)
        task = asyncio.create_task(work)

        assert await rounds_until(task) > 0.1 / SLICE_SECONDS / 4
        assert task.result() == "done"

    run(scenario())


def test_work_that_does_not_yield_lets_no_other_task_run() -> None:
    async def scenario() -> None:
        def stubborn() -> Work[None]:
            yield asyncio.sleep(0)
            time.sleep(0.1)

        task = asyncio.create_task(SliceScheduler().run(stubborn()))

        assert await rounds_until(task) < 10

    run(scenario())


def test_only_one_works_in_a_round() -> None:
    async def scenario() -> None:
        slices, worked = SliceScheduler(), []

        def noting(name: str) -> Work[None]:
            yield from busy(SLICE_SECONDS)
            for _ in range(5):
                worked.append((name, rounds))
                yield from busy(SLICE_SECONDS)

        rounds = 0
        tasks = [asyncio.create_task(slices.run(noting(name))) for name in "abc"]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            rounds += 1

        later = {entry for entry in worked if entry[1] > 3}
        assert len({number for _, number in later}) == len(later), "no two of them in one round"
        assert {name for name, _ in worked[:6]} == {"a", "b", "c"}, "they take turns"

    run(scenario())


def test_work_resumes_with_the_result_that_it_awaited() -> None:
    async def scenario() -> None:
        async def answer(number: int) -> int:
            await asyncio.sleep(0)
            return number

        def waiting() -> Work[int]:
            first = yield answer(3)
            yield
            second = yield answer(4)
            return int(first + second)

        assert await SliceScheduler().run(waiting()) == 7

    run(scenario())


def test_an_error_of_what_it_waits_for_is_raised_in_it() -> None:
    async def scenario() -> None:
        async def failing() -> None:
            raise OSError("gone")

        def waiting() -> Work[str]:
            try:
                yield failing()
            except OSError as error:
                return str(error)
            return "nothing"

        assert await SliceScheduler().run(waiting()) == "gone"

    run(scenario())


def test_an_outcome_that_has_to_be_waited_for_is_waited_for() -> None:
    async def scenario() -> None:
        async def later() -> str:
            return "later"

        def work() -> Work[Any]:
            yield from busy(2 * SLICE_SECONDS)
            return later()

        assert await SliceScheduler().run(work()) == "later"

    run(scenario())


def test_one_that_is_given_up_is_closed_and_the_others_go_on() -> None:
    async def scenario() -> None:
        slices, closed = SliceScheduler(), []

        def endless() -> Work[None]:
            try:
                while True:
                    CLOCK.now += STEP_SECONDS
                    yield
            finally:
                closed.append(True)

        given_up = asyncio.create_task(slices.run(endless()))
        other = asyncio.create_task(slices.run(busy(0.05)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not other.done()
        given_up.cancel()

        assert await other == "done"
        await asyncio.wait([given_up])
        assert closed == [True]
        assert await slices.run(busy(0.01)) == "done"

    run(scenario())


def test_a_connection_rests_after_long_work_and_only_before_more_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        CLOCK.now += seconds
        await real_sleep(0)

    async def scenario() -> None:
        slices, account = SliceScheduler(), Account()
        await slices.run(busy(2 * UNTHROTTLED_SECONDS), account)
        rest = account.throttled_until - CLOCK.now
        assert rest > UNTHROTTLED_SECONDS

        assert slices.start(busy(0), account) == "done", "what is short need not wait"
        await slices.run(busy(2 * SLICE_SECONDS), Account())
        assert rests == [], "nor do other connections"
        before = CLOCK.now
        await slices.run(busy(2 * SLICE_SECONDS), account)

        assert rests == [pytest.approx(account.throttled_until - before, abs=2 * SLICE_SECONDS)]

    monkeypatch.setattr("holdfast.broker.util.slices.asyncio.sleep", sleep)
    run(scenario())


@pytest.fixture(autouse=True)
def usual_threshold() -> Iterator[tuple[int, int, int]]:
    usual = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*usual)


def waiting(released: asyncio.Event) -> Work[None]:
    """Long work that ends when it is released."""
    yield released.wait()


async def started(slices: SliceScheduler, released: asyncio.Event) -> asyncio.Task[None]:
    task = asyncio.create_task(slices.run(waiting(released)))
    await asyncio.sleep(0)
    return task


def test_the_collector_makes_no_full_search_meanwhile(
    usual_threshold: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.broker.util.slices.GC_RESUME_SECONDS", 0.01)

    async def scenario() -> None:
        released = asyncio.Event()
        task = await started(SliceScheduler(), released)

        assert gc.get_threshold()[2] > 1_000_000
        released.set()
        await task
        while gc.get_threshold() != usual_threshold:  # noqa: ASYNC110  # the collector has no event
            await asyncio.sleep(0.001)

    run(scenario())


def test_the_collector_searches_again_if_long_works_never_end(usual_threshold: tuple[int, int, int]) -> None:
    async def scenario() -> None:
        slices, released = SliceScheduler(), asyncio.Event()
        tasks = [await started(slices, released)]
        tasks.append(await started(slices, released))
        assert gc.get_threshold() != usual_threshold, "the time without a full search is not over"
        CLOCK.now += MAX_SECONDS_WITHOUT_GC + 1
        tasks.append(await started(slices, released))
        assert gc.get_threshold() == usual_threshold
        released.set()
        await asyncio.gather(*tasks)

    run(scenario())


def test_a_coroutine_can_go_over_many_things_in_slices() -> None:
    async def scenario() -> None:
        slices, seen = SliceScheduler(), []

        async def slow() -> None:
            async for number in slices.iterate(range(50)):
                CLOCK.now += SLICE_SECONDS / 2
                seen.append(number)

        task = asyncio.create_task(slow())

        assert await rounds_until(task) > 15
        assert seen == list(range(50))

    run(scenario())
