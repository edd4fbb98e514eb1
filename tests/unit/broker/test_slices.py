"""Long work in slices: what is short is done at once, what is long lets everybody else in."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from holdfast.broker.slices import FREE_SECONDS, SLICE_SECONDS, Slices, Work


class Account:
    rests_until = 0.0


def busy(seconds: float) -> Work[str]:
    """Works for so long, with many places to pause."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
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

    assert Slices().begin(short()) == 7


def test_an_error_in_it_is_the_callers() -> None:
    def failing() -> Work[int]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Slices().begin(failing())


def test_long_work_lets_others_in() -> None:
    async def scenario() -> None:
        work = Slices().begin(busy(0.1))
        assert isinstance(work, Coroutine)
        task = asyncio.create_task(work)

        assert await rounds_until(task) > 0.1 / SLICE_SECONDS / 4
        assert task.result() == "done"

    run(scenario())


def test_without_a_place_to_pause_nobody_gets_in() -> None:
    async def scenario() -> None:
        def stubborn() -> Work[None]:
            yield asyncio.sleep(0)
            time.sleep(0.1)

        task = asyncio.create_task(Slices().finish(stubborn()))

        assert await rounds_until(task) < 10

    run(scenario())


def test_only_one_works_in_a_round() -> None:
    async def scenario() -> None:
        slices, worked = Slices(), []

        def noting(name: str) -> Work[None]:
            until = time.monotonic() + SLICE_SECONDS
            while time.monotonic() < until:
                yield
            for _ in range(5):
                worked.append((name, rounds))
                until = time.monotonic() + SLICE_SECONDS
                while time.monotonic() < until:
                    yield

        rounds = 0
        tasks = [asyncio.create_task(slices.finish(noting(name))) for name in "abc"]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            rounds += 1

        later = {entry for entry in worked if entry[1] > 3}
        assert len({number for _, number in later}) == len(later), "no two of them in one round"
        assert {name for name, _ in worked[:6]} == {"a", "b", "c"}, "they take turns"

    run(scenario())


def test_it_goes_on_with_what_it_waited_for() -> None:
    async def scenario() -> None:
        async def answer(number: int) -> int:
            await asyncio.sleep(0)
            return number

        def waiting() -> Work[int]:
            first = yield answer(3)
            yield
            second = yield answer(4)
            return int(first + second)

        assert await Slices().finish(waiting()) == 7

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

        assert await Slices().finish(waiting()) == "gone"

    run(scenario())


def test_an_outcome_that_has_to_be_waited_for_is_waited_for() -> None:
    async def scenario() -> None:
        async def later() -> str:
            return "later"

        def work() -> Work[Any]:
            yield from busy(2 * SLICE_SECONDS)
            return later()

        assert await Slices().finish(work()) == "later"

    run(scenario())


def test_one_that_is_given_up_is_closed_and_the_others_go_on() -> None:
    async def scenario() -> None:
        slices, closed = Slices(), []

        def endless() -> Work[None]:
            try:
                while True:
                    yield
            finally:
                closed.append(True)

        given_up = asyncio.create_task(slices.finish(endless()))
        other = asyncio.create_task(slices.finish(busy(0.05)))
        await asyncio.sleep(0.02)
        given_up.cancel()

        assert await other == "done"
        assert closed == [True]
        assert await slices.finish(busy(0.01)) == "done"

    run(scenario())


def test_a_connection_rests_after_long_work_and_only_before_more_of_it() -> None:
    async def scenario() -> None:
        slices, account = Slices(), Account()
        await slices.finish(busy(2 * FREE_SECONDS), account)
        rest = account.rests_until - time.monotonic()
        assert rest > FREE_SECONDS / 2

        begun = time.monotonic()
        assert slices.begin(busy(0), account) == "done", "what is short need not wait"
        await slices.finish(busy(2 * SLICE_SECONDS), Account())
        assert time.monotonic() < account.rests_until, "nor does anybody else"
        await slices.finish(busy(2 * SLICE_SECONDS), account)

        assert time.monotonic() - begun > rest * 0.9

    run(scenario())


@pytest.fixture(autouse=True)
def usual_threshold() -> Iterator[tuple[int, int, int]]:
    usual = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*usual)


def test_the_collector_makes_no_full_search_meanwhile(
    usual_threshold: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.broker.slices.LINGER_SECONDS", 0.01)

    async def scenario() -> None:
        task = asyncio.create_task(Slices().finish(busy(0.02)))
        await asyncio.sleep(0.005)

        assert gc.get_threshold()[2] > 1_000_000
        await task
        await asyncio.sleep(0.5)
        assert gc.get_threshold() == usual_threshold

    run(scenario())


def test_the_collector_searches_again_if_long_works_never_end(
    usual_threshold: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.broker.slices.MOST_SECONDS_WITHOUT_SEARCH", 0.01)

    async def scenario() -> None:
        slices = Slices()
        first = asyncio.create_task(slices.finish(busy(0.05)))
        await asyncio.sleep(0.02)
        assert gc.get_threshold() != usual_threshold
        second = asyncio.create_task(slices.finish(busy(0.02)))
        await asyncio.sleep(0.01)
        assert gc.get_threshold() == usual_threshold
        await asyncio.gather(first, second)

    run(scenario())


def test_a_coroutine_can_go_over_many_things_in_slices() -> None:
    async def scenario() -> None:
        slices, seen = Slices(), []

        async def slow() -> None:
            async for number in slices.over(range(50)):
                time.sleep(SLICE_SECONDS / 2)  # noqa: ASYNC251  # work, not waiting
                seen.append(number)

        task = asyncio.create_task(slow())

        assert await rounds_until(task) > 15
        assert seen == list(range(50))

    run(scenario())
