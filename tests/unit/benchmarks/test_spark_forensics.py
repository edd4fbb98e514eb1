"""The histories of the benchmarks are like those of a broker, and the case compares their cost with its target."""

from __future__ import annotations

import pytest

from benchmarks import group_histories
from benchmarks.cases import spark_forensics
from benchmarks.cases.spark_forensics import GIANT, ONE, START, TEN
from benchmarks.measure import HOLDFAST, Result, Row
from holdfast.spark.pipelines.forensics.commit_filter import CommitFilter, HistoryRecord
from holdfast.spark.pipelines.forensics.records import RecordKind
from tests.unit.spark.pipelines.forensics.histories import followed


def test_a_history_of_the_bench_is_found_as_it_was_made() -> None:
    made = group_histories.history(1_000, groups=1)
    all_records = [*group_histories.records(made)]
    stored = [
        (key, value, at, place) for place, (is_event, _, key, value, at) in enumerate(all_records) if not is_event
    ]
    reported = [
        HistoryRecord(key.decode(), at, place, RecordKind.EVENT, value)
        for place, (is_event, _, key, value, at) in enumerate(all_records)
        if is_event
    ]

    found = followed([*CommitFilter().records(stored), *reported])

    assert len(all_records) == made.events == 1_000
    assert found.summary["rebalances"] == made.rebalances == 20
    assert found.summary["moved"] == 19 * 3, "of the first one it is not known who had what before"
    assert found.summary["static_rebalances"] == 19, "each one left and was back before the others had joined"
    assert (found.summary["went_back"], found.summary["unseen_generations"], found.unread) == (0, 0, {})


def result(seconds: dict[str, float]) -> Result:
    rows = [Row(series, HOLDFAST, 1, {"seconds": value}) for series, value in seconds.items()]
    settings = {
        "events": dict.fromkeys(seconds, 1),
        "groups": 1,
        "commits": 45,
        "per_rebalance": 50,
        "cores": 2,
        "versions": {"Spark": "4.3.0"},
    }
    return Result(spark_forensics.NAME, settings, rows)


@pytest.mark.parametrize(("ten", "met"), [(5.0 + 10 * 8.0, True), (5.0 + 12 * 8.0, False)])
def test_ten_times_as_many_events_may_take_ten_times_as_long_without_the_start(ten: float, met: bool) -> None:
    measured = result({START: 5.0, ONE: 13.0, GIANT: 20.0, TEN: ten})

    assert [one.met for one in spark_forensics.verdicts(measured)] == [met]
    assert any(line.startswith("| 10 M") for line in spark_forensics.section(measured))
