"""The thread of a membership when the world is against it; the network is written by the test."""

from __future__ import annotations

import time
from typing import Any

import pytest

from holdfast.client.commits import Commits
from holdfast.client.driver import Driver
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, HoldfastError
from holdfast.membership import MembershipSettings
from holdfast.membership.effects import Failed, Prepare
from holdfast.membership.failures import FailureKind
from tests.support.eventually import eventually

SETTINGS = MembershipSettings("g", "consumer", retry_backoff_ms=1, retry_backoff_max_ms=1)


class Refusing:
    """A network on which every attempt ends in the same way."""

    def __init__(self, error: Exception) -> None:
        self.attempts = 0
        self._error = error

    def any(self, _deadline: float) -> Any:
        self.attempts += 1
        raise self._error

    def close(self) -> None:
        pass


def started(network: Any) -> Driver:
    """A driver that looks for its coordinator."""
    driver = Driver(SETTINGS, network, "driver-under-test")
    driver.start()
    driver.do(lambda membership, now: membership.join(now))
    assert isinstance(driver.take_event(60), Prepare)
    return driver


def test_credentials_that_are_refused_are_shown_once_and_not_again() -> None:
    network = Refusing(AuthenticationFailed("wrong password"))
    driver = started(network)
    try:
        event = driver.take_event(60)
        assert isinstance(event, Failed) and event.failure.kind is FailureKind.NOT_AUTHENTICATED

        assert driver.take_event(0.3) is None
        assert network.attempts == 1
    finally:
        driver.stop()


def test_a_broker_that_is_down_is_tried_again_and_again() -> None:
    """The control of the test before."""
    network = Refusing(ConnectionFailed("connection refused"))
    driver = started(network)
    try:
        eventually(lambda: network.attempts > 5, "several attempts")
        assert not driver.has_events
    finally:
        driver.stop()
    assert not driver.is_alive


def test_a_fault_in_the_thread_is_told_and_nobody_waits_for_it() -> None:
    driver = started(Refusing(ZeroDivisionError("a fault of our own")))
    event = driver.take_event(60)
    assert isinstance(event, Failed) and "a fault of our own" in event.failure.message
    eventually(lambda: not driver.is_alive, "the thread ends")

    driver.start()  # does nothing
    began = time.monotonic()
    with pytest.raises(HoldfastError, match="membership has ended"):
        Commits(driver).wait_for({("t", 0): (1, None, -1)}, 60_000)
    assert time.monotonic() - began < 10
