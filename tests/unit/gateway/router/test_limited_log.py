"""One line for many events of the same kind."""

from __future__ import annotations

import logging

import pytest

from holdfast.gateway.router.limited_log import QUIET_SECONDS, LimitedLog


def test_repeated_lines_are_counted_and_other_subjects_are_not_affected(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = LimitedLog(logging.getLogger("test"), lambda: now)
    for _ in range(5):
        log.warning(1, "broker 1 is gone")
    log.warning(2, "broker 2 is gone")
    now = QUIET_SECONDS
    log.warning(1, "broker 1 is gone")
    now += QUIET_SECONDS
    log.warning(1, "broker 1 is gone")
    assert caplog.messages == [
        "broker 1 is gone",
        "broker 2 is gone",
        "broker 1 is gone (4 more since the last line about it)",
        "broker 1 is gone",
    ]
