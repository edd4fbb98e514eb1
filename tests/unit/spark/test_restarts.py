"""A session that is shorter than a restart, or not much longer, is warned about; a query that only was idle is not."""

from __future__ import annotations

import logging
import time

import pytest

from holdfast.spark import query as running
from holdfast.spark.options import stream_options
from holdfast.spark.query import Query
from holdfast.spark.restarts import Away, away, warn_after_restart

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"}


@pytest.mark.parametrize(
    ("age_s", "was"),
    [
        (40.0, Away(40.0, 100.0)),  # the driver was started after the last batch
        (100.0, Away(100.0, 100.0)),
        (101.0, Away(0.0, 100.0)),  # before it: the query had both of its lives in this driver
        (None, Away(0.0, 100.0)),
    ],
)
def test_a_query_was_away_since_its_last_batch_at_most_and_since_its_driver_at_least(
    age_s: float | None, was: Away
) -> None:
    assert away(1_000_000, 1_100_000, age_s) == was


def test_a_batch_of_the_future_says_nothing() -> None:
    assert away(1_000_001, 1_000_000, 1.0) is None


@pytest.mark.parametrize(
    ("was", "said"),
    [
        (
            Away(85, 95),
            "kafka.session.timeout.ms is 60 s, but this query was away for 85 s at least: its seat was given",
        ),
        (Away(85, 90_000), "was away for 85 s at least"),  # it had nothing to read for a day; but this is known
        (Away(25, 95), None),  # perhaps there was nothing to read before a quick restart
        (Away(0, 90_000), None),
        (Away(4_000, 4_000), None),  # stopped on purpose
        (Away(31, 40), "kafka.session.timeout.ms is 60 s, and this restart took at least 31 s, more than half of it"),
        (Away(60, 95), "more than half of it"),
        (Away(30, 40), None),
    ],
)
def test_what_is_told_of_a_restart(caplog: pytest.LogCaptureFixture, was: Away, said: str | None) -> None:
    with caplog.at_level(logging.WARNING):
        warn_after_restart(was, 60.0)

    assert len(caplog.messages) == (said is not None)
    assert (said or "") in caplog.text


@pytest.mark.parametrize(
    ("more", "age_s", "warned"),
    [
        ({"kafka.group.instance.id": "i", "kafka.session.timeout.ms": "20000"}, 25.0, True),
        ({"kafka.group.instance.id": "i", "kafka.session.timeout.ms": "60000"}, 25.0, False),
        ({"kafka.session.timeout.ms": "20000"}, 25.0, False),  # nobody keeps its seat
        ({"kafka.group.instance.id": "i", "kafka.session.timeout.ms": "20000"}, 4000.0, False),  # not of a restart
        ({"kafka.group.instance.id": "i", "kafka.session.timeout.ms": "20000"}, None, False),
    ],
)
def test_before_the_first_start_the_age_of_the_driver_is_all_that_is_known(
    more: dict[str, str],
    age_s: float | None,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(running, "driver_age_s", lambda: age_s)
    query = Query(stream_options({**OPTIONS, **more}))

    query._warn_of_short_session(None)

    assert ("kafka.session.timeout.ms is 20 s, but this query joins 25 s after" in caplog.text) is warned
    query.close()


@pytest.mark.parametrize(("age_s", "warned"), [(25.0, True), (9.0, False), (31.0, False)])
def test_a_query_that_is_started_again_goes_by_its_last_batch_and_its_driver(
    age_s: float, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A driver that is older than the last batch has had both lives of the query."""
    monkeypatch.setattr(running, "driver_age_s", lambda: age_s)
    query = Query(stream_options({**OPTIONS, "kafka.group.instance.id": "i", "kafka.session.timeout.ms": "20000"}))

    query._warn_of_short_session(time.time_ns() // 1_000_000 - 30_000)

    assert ("kafka.session.timeout.ms is 20 s, but this query was away for 25 s at least" in caplog.text) is warned
    query.close()
