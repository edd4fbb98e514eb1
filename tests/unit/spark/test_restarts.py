"""A session that is shorter than a restart, or not much longer, is warned about; a query that only was idle is not."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from holdfast.spark import query as running
from holdfast.spark.offsets import Progress
from holdfast.spark.options import stream_options
from holdfast.spark.query import Query
from holdfast.spark.restarts import Away, away, warn_after_restart
from tests.support.spark_engine import Killed, Point
from tests.support.spark_world import SOON_MISSED, World

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"}
SEAT = {"kafka.group.instance.id": "spark-1"}
GIVEN_AWAY, MORE_THAN_HALF = "its seat was given away meanwhile", "more than half of it"


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
    ("was", "is_gone", "said"),
    [
        (Away(25, 95), True, "kafka.session.timeout.ms is 60 s, but this query was away for about 95 s"),
        (Away(0, 61), True, GIVEN_AWAY),
        (Away(85, 90_000), True, "was away for about 85 s"),  # it had nothing to read for a day; but this is known
        (Away(25, 95), False, None),  # nothing to read before a quick restart
        (Away(0, 59), True, None),  # the group was deleted, or the seat is a new one
        (Away(25, 90_000), True, None),  # stopped on purpose
        (Away(4_000, 4_000), True, None),
        (Away(31, 40), False, "kafka.session.timeout.ms is 60 s, and this restart took at least 31 s"),
        (Away(31, 95), False, MORE_THAN_HALF),
        (Away(30, 40), False, None),
        (Away(0, 40), False, None),
        (Away(61, 95), False, None),  # whatever happened, the seat has waited
    ],
)
def test_what_is_told_of_a_restart(
    caplog: pytest.LogCaptureFixture, was: Away, is_gone: bool, said: str | None
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


@pytest.mark.parametrize("point", [Point.COMMITTED, Point.PLANNED])
def test_a_query_that_comes_back_after_its_session_says_so_once(world: World, point: Point) -> None:
    world.make_topic(2, each=5)
    first = world.query(SEAT | SOON_MISSED)
    with pytest.raises(Killed):
        first.trigger(point)
    # when the seat has been given away
    world.await_nobody()
    second = world.query(SEAT | SOON_MISSED, first.checkpoint)
    second.run_until_idle()

    # then
    assert second.reader.log_text().count("kafka.session.timeout.ms is 3 s, but this query was away for about") == 1
    assert "was away" not in first.reader.log_text()


def test_a_query_that_had_nothing_to_read_for_long_and_finds_its_seat_says_nothing(world: World) -> None:
    # given a query that planned its last batch five minutes ago, by its checkpoint, and was killed just now
    world.make_topic(2, each=5)
    options = SEAT | {"kafka.session.timeout.ms": "60000"}
    first = world.query(options)
    assert first.trigger() is not None
    first.kill()
    planned = Progress.from_json(json.loads(first.checkpoint.offsets[-1]))
    assert planned.planned_ms is not None
    idle = replace(planned, planned_ms=planned.planned_ms - 300_000)
    first.checkpoint.offsets[-1] = json.dumps(idle.to_json())

    # when
    second = world.query(options, first.checkpoint)
    second.run_until_idle()

    # then
    assert world.instance_ids() == {"spark-1"}
    assert GIVEN_AWAY not in second.reader.log_text()
