"""The thread of a membership when the world is against it; the network is written by the test."""

from __future__ import annotations

import time
from typing import Any

import pytest

from holdfast.client.clock import SYSTEM_CLOCK
from holdfast.client.commit_sender import CommitSender
from holdfast.client.errors import AuthenticationFailed, ConnectionFailed, HoldfastError
from holdfast.client.membership_thread import MembershipThread
from holdfast.membership import MembershipSettings
from holdfast.membership.effects import Failed, JoinPrepare
from holdfast.membership.failures import FailureKind
from tests.support.eventually import eventually

SETTINGS = MembershipSettings("g", "consumer", retry_backoff_ms=1, retry_backoff_max_ms=1)


class Refusing:
    """A network on which every attempt ends in the same way."""

    clock = SYSTEM_CLOCK

    def __init__(self, error: Exception) -> None:
        self.attempts = 0
        self._error = error

    def any(self, _deadline: float) -> Any:
        self.attempts += 1
        raise self._error

    def close(self) -> None:
        pass


def started(network: Any) -> MembershipThread:
    """A thread that looks for its coordinator."""
    thread = MembershipThread(SETTINGS, network, "thread-under-test")
    thread.start()
    thread.submit(lambda membership, now: membership.join(now))
    assert isinstance(thread.next_event(60), JoinPrepare)
    return thread


def test_credentials_that_are_refused_are_shown_once_and_not_again() -> None:
    network = Refusing(AuthenticationFailed("wrong password"))
    thread = started(network)
    try:
        event = thread.next_event(60)
        assert isinstance(event, Failed) and event.failure.kind is FailureKind.NOT_AUTHENTICATED

        assert thread.next_event(0.3) is None
        assert network.attempts == 1
    finally:
        thread.stop()


def test_a_broker_that_is_down_is_tried_again_and_again() -> None:
    """The control of the test before."""
    network = Refusing(ConnectionFailed("connection refused"))
    thread = started(network)
    try:
        eventually(lambda: network.attempts > 5, "several attempts")
        assert not thread.has_events
    finally:
        thread.stop()
    assert not thread.is_alive


def test_a_fault_in_the_thread_is_reported_and_no_caller_blocks() -> None:
    thread = started(Refusing(ZeroDivisionError("a fault of our own")))
    event = thread.next_event(60)
    assert isinstance(event, Failed) and "a fault of our own" in event.failure.message
    eventually(lambda: not thread.is_alive, "the thread ends")

    thread.start()  # does nothing
    began = time.monotonic()
    with pytest.raises(HoldfastError, match="membership has ended"):
        CommitSender(thread).commit_sync({("t", 0): (1, None, -1)}, 60_000)
    assert time.monotonic() - began < 10
