"""Requests for transactions are logged, each client once in a period, and not too many of them."""

from __future__ import annotations

import pytest

from holdfast.broker.api.rejected_transactions import MAX_LINES, MAX_NAME_LENGTH, PERIOD_S, RejectedTransactionsLog

HOST = "192.0.2.7"


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_each_client_and_id_is_one_line_in_a_period(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = RejectedTransactionsLog(now_s=clock)
    for client_id, transactional_id in (("a", "t"), ("a", "t"), ("b", "t"), ("a", "u"), (None, "t"), ("a", "t")):
        refusals.log(client_id, HOST, transactional_id)
    assert len(caplog.records) == 4

    clock.now += PERIOD_S
    refusals.log("a", HOST, "t")
    assert len(caplog.records) == 5


def test_of_very_many_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = RejectedTransactionsLog(now_s=clock)
    for number in range(MAX_LINES + 7):
        refusals.log("a", HOST, str(number))
    assert len(caplog.records) == MAX_LINES

    clock.now += PERIOD_S
    refusals.log("a", HOST, "t")

    counted, _ = caplog.records[MAX_LINES:]
    assert (counted.message, counted.__dict__["fields"]) == ("further requests for transactions refused", {"count": 7})


def test_long_ids_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    RejectedTransactionsLog().log("a" * 30_000, HOST, "t" * 30_000)

    (line,) = caplog.records
    assert [len(line.__dict__["fields"][name]) for name in ("client_id", "transactional_id")] == [MAX_NAME_LENGTH] * 2
