"""Deadlines: they fire once, in order, when they are due, and what is cancelled does not pile up."""

from __future__ import annotations

import pytest

from holdfast.coordinator.runtime.timers import Timers


def test_what_is_due_fires_in_order_and_once() -> None:
    timers, fired = Timers(), []
    for at_ms in (30, 10, 20):
        timers.at(at_ms, lambda _now, at_ms=at_ms: fired.append(at_ms))  # type: ignore[misc]

    timers.fire(20)
    timers.fire(20)
    timers.fire(30)

    assert fired == [10, 20, 30]


def test_a_deadline_that_is_put_off_fires_at_the_new_time() -> None:
    timers, fired = Timers(), list[int]()
    timer = timers.at(10, fired.append)
    timer.move(50)

    timers.fire(49)
    assert fired == []
    timers.fire(50)
    assert fired == [50]


def test_a_deadline_that_is_put_forward_fires_at_the_new_time_and_not_again() -> None:
    timers, fired = Timers(), list[int]()
    timer = timers.at(100, fired.append)
    timer.move(10)

    timers.fire(10)
    timers.fire(100)

    assert fired == [10]


def test_back_and_forth() -> None:
    timers, fired = Timers(), list[int]()
    timer = timers.at(100, fired.append)
    timer.move(10)
    timer.move(100)
    timers.fire(10)
    timer.move(40)
    timers.fire(39)
    assert fired == []

    timers.fire(40)
    timers.fire(1_000)

    assert fired == [40]


def test_what_is_cancelled_does_not_fire_and_is_not_waited_for() -> None:
    timers, fired = Timers(), list[int]()
    timers.at(10, fired.append).cancel()

    assert timers.next_ms() is None
    timers.fire(10)
    assert fired == []


@pytest.mark.timeout(10)
def test_an_action_that_sets_a_deadline_of_zero_does_not_hold_the_rest_up() -> None:
    timers, fired = Timers(), list[int]()

    def again(now_ms: int) -> None:
        fired.append(now_ms)
        timers.at(now_ms, again)

    timers.at(10, again)

    timers.fire(10)
    assert fired == [10]
    timers.fire(11)
    assert fired == [10, 11]


def test_a_hundred_thousand_deadlines_that_are_cancelled_leave_little_behind() -> None:
    timers = Timers()
    keep = timers.at(5, lambda _now: None)

    for number in range(100_000):
        timers.at(1_000_000 + number, lambda _now: None).cancel()

    assert len(timers._heap) < 5_000
    assert timers.next_ms() == keep.at_ms


def test_a_hundred_thousand_times_put_off_is_one_entry() -> None:
    timers = Timers()
    timer = timers.at(1_000, lambda _now: None)

    for number in range(100_000):
        timer.move(1_000 + number)

    assert len(timers._heap) == 1


def test_no_more_than_so_many_fire_at_once_and_the_others_stay_due() -> None:
    timers, fired = Timers(), list[int]()
    for at_ms in (30, 10, 20):
        timers.at(at_ms, lambda _, at_ms=at_ms: fired.append(at_ms))  # type: ignore[misc]

    timers.fire(100, 2)
    assert (fired, timers.next_ms()) == ([10, 20], 30)

    timers.fire(100)
    assert fired == [10, 20, 30]
