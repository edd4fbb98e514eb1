"""A session that is shorter than a restart, or not much longer, is warned about; a query that only was idle is not."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from holdfast.spark import stream_planner as running
from holdfast.spark.batch_offsets import BatchOffsets
from holdfast.spark.options import stream_options
from holdfast.spark.restart_warning import Downtime, downtime, warn_after_restart, warn_before_first_start
from holdfast.spark.stream_planner import StreamPlanner
from tests.support.spark_engine import Killed, Point
from tests.support.spark_harness import SOON_MISSED, SparkHarness

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"}
MEMBER = {"kafka.group.instance.id": "spark-1"}
EXPIRED, MORE_THAN_HALF = "the session of its static member expired", "more than half of it"


@pytest.mark.parametrize(
    ("age_s", "was"),
    [
        (40.0, Downtime(40.0, 100.0)),  # the driver was started after the last batch
        (100.0, Downtime(100.0, 100.0)),
        (101.0, Downtime(0.0, 100.0)),  # before it: the query had both of its lives in this driver
        (None, Downtime(0.0, 100.0)),
    ],
)
def test_a_query_was_away_since_its_last_batch_at_most_and_since_its_driver_at_least(
    age_s: float | None, was: Downtime
) -> None:
    assert downtime(1_000_000, 1_100_000, age_s) == was


def test_a_batch_of_the_future_says_nothing() -> None:
    assert downtime(1_000_001, 1_000_000, 1.0) is None


@pytest.mark.parametrize(
    ("was", "is_gone", "said"),
    [
        (Downtime(25, 95), True, "kafka.session.timeout.ms is 60 s, but this query was down for about 95 s"),
        (Downtime(0, 61), True, EXPIRED),
        (Downtime(85, 90_000), True, "was down for about 85 s"),  # it had nothing to read for a day; but this is known
        (Downtime(25, 95), False, None),  # nothing to read before a quick restart
        (Downtime(0, 59), True, None),  # the group was deleted, or the member is new
        (Downtime(25, 90_000), True, None),  # stopped on purpose
        (Downtime(4_000, 4_000), True, None),
        (Downtime(31, 40), False, "kafka.session.timeout.ms is 60 s, and this restart took at least 31 s"),
        (Downtime(31, 95), False, MORE_THAN_HALF),
        (Downtime(30, 40), False, None),
        (Downtime(0, 40), False, None),
        (Downtime(61, 95), False, None),  # whatever happened, the member was kept
    ],
)
def test_the_warning_after_a_restart(
    caplog: pytest.LogCaptureFixture, was: Downtime, is_gone: bool, said: str | None
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_after_restart(was, 60.0, lambda: is_gone)

    assert len(caplog.messages) == (said is not None)
    assert (said or "") in caplog.text


@pytest.mark.parametrize(
    ("more", "age_s", "warned"),
    [
        ({"kafka.group.instance.id": "i", "kafka.session.timeout.ms": "20000"}, 25.0, True),
        ({"kafka.group.instance.id": "i", "kafka.session.timeout.ms": "60000"}, 25.0, False),
        ({"kafka.session.timeout.ms": "20000"}, 25.0, False),  # nobody stays in the group
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
    query = StreamPlanner(stream_options({**OPTIONS, **more}))

    query._warn_of_short_session(None)

    assert ("kafka.session.timeout.ms is 20 s, but this query joins 25 s after" in caplog.text) is warned
    query.close()


@pytest.mark.parametrize(
    ("session_s", "age_s", "warned"),
    [
        (60, 59, False),
        (60, 61, True),  # the default session
        (60, 180, True),
        (60, 181, False),  # it has done other work before
        (10, 60, True),
        (10, 61, False),
        (60, None, False),
    ],
)
def test_a_driver_that_took_longer_than_the_session_is_warned_about_while_it_is_fresh(
    caplog: pytest.LogCaptureFixture, session_s: float, age_s: float | None, warned: bool
) -> None:
    warn_before_first_start(session_s, age_s)

    assert (f"is {session_s} s, but this query joins {age_s} s after the start of its driver" in caplog.text) is warned
    assert len(caplog.messages) == warned


@pytest.mark.parametrize("point", [Point.COMMITTED, Point.PLANNED])
def test_a_query_that_comes_back_after_its_session_says_so_once(world: SparkHarness, point: Point) -> None:
    world.make_topic(2, each=5)
    first = world.query(MEMBER | SOON_MISSED)
    with pytest.raises(Killed):
        first.trigger(point)
    # when the partitions have been reassigned
    world.await_no_members()
    second = world.query(MEMBER | SOON_MISSED, first.checkpoint)
    second.run_until_idle()

    # then
    assert second.reader.log_text().count("kafka.session.timeout.ms is 3 s, but this query was down for about") == 1
    assert "was away" not in first.reader.log_text()


def test_a_query_that_was_idle_for_long_and_is_still_a_member_logs_no_warning(world: SparkHarness) -> None:
    # given a query that planned its last batch five minutes ago, by its checkpoint, and was killed just now
    world.make_topic(2, each=5)
    options = MEMBER | {"kafka.session.timeout.ms": "60000"}
    first = world.query(options)
    assert first.trigger() is not None
    first.kill()
    planned = BatchOffsets.from_json(json.loads(first.checkpoint.offsets[-1]))
    assert planned.planned_ms is not None
    idle = replace(planned, planned_ms=planned.planned_ms - 300_000)
    first.checkpoint.offsets[-1] = json.dumps(idle.to_json())

    # when
    second = world.query(options, first.checkpoint)
    second.run_until_idle()

    # then
    assert world.instance_ids() == {"spark-1"}
    assert EXPIRED not in second.reader.log_text()
