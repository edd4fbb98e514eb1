"""What the demo of the gateway counts, takes for a failure, and reports."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from examples.demo_gateway import Figures, count_records, longest_pause_ms, print_table, unexpected, write_report

GOOD = Figures(
    rebalances_without_registration=3,
    rebalances_with_registration=1,
    gateway_away_ms=2_345,
    longest_pause_ms=3_456,
    rebalances_by_restart=0,
    partitions_moved_by_restart=0,
    records=12_345,
    records_lost=0,
    records_duplicated=0,
)


def processed(at_ms: int, *ranges: tuple[int, int, int]) -> dict[str, Any]:
    return {"at_ms": at_ms, "event": "processed", "ranges": [list(one) for one in ranges]}


@pytest.mark.parametrize(
    ("ranges", "counts"),
    [
        ([(0, 0, 10), (1, 0, 5)], (0, 0)),
        ([(0, 0, 4), (0, 4, 10), (1, 0, 5)], (0, 0)),
        ([(0, 0, 4), (0, 6, 10), (1, 0, 5)], (2, 0)),
        ([(0, 0, 10)], (5, 0)),
        ([(0, 0, 9), (1, 0, 5)], (1, 0)),
        ([(0, 0, 10), (0, 3, 7), (1, 0, 5)], (0, 4)),
        ([(0, 0, 7), (0, 3, 10), (1, 0, 5)], (0, 4)),
        ([], (15, 0)),
    ],
)
def test_records_that_are_missing_or_processed_twice_are_counted(
    ranges: list[tuple[int, int, int]], counts: tuple[int, int]
) -> None:
    # given: each range by another consumer
    events = {f"consumer-{number}": [processed(number, one)] for number, one in enumerate(ranges)}

    assert count_records(events, {0: 10, 1: 5}) == counts


def test_a_pause_is_that_of_one_consumer_around_the_restart() -> None:
    events = {
        "before it": [processed(0), processed(900)],
        "around it": [processed(1_000), processed(1_050), processed(1_300)],
        "the longest": [processed(700), processed(990), processed(1_400), processed(1_450)],
        "after it": [processed(1_200), processed(9_000)],
    }

    assert longest_pause_ms(events, 1_000, 1_200) == 410


def test_one_rebalance_for_registered_members_and_none_for_a_restart_are_as_expected() -> None:
    assert unexpected(GOOD) == []


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (replace(GOOD, rebalances_without_registration=1), "rebalances_without_registration is 1"),
        (replace(GOOD, rebalances_with_registration=2), "rebalances_with_registration is 2"),
        (replace(GOOD, rebalances_with_registration=0), "rebalances_with_registration is 0"),
        (replace(GOOD, rebalances_by_restart=1), "rebalances_by_restart is 1"),
        (replace(GOOD, partitions_moved_by_restart=4), "partitions_moved_by_restart is 4"),
        (replace(GOOD, records_lost=1), "records_lost is 1"),
        (replace(GOOD, records_duplicated=2), "records_duplicated is 2"),
    ],
)
def test_each_figure_that_must_hold_is_missed(figures: Figures, said: str) -> None:
    assert unexpected(figures) == [said]


def test_the_table_and_the_report_have_the_same_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(GOOD)
    write_report(tmp_path / "out", GOOD, 101.26, [])

    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report == {"seconds": 101.3, "as_expected": True, "complaints": [], **asdict(GOOD)}
    printed = capsys.readouterr().out.splitlines()
    assert "rebalances for 3 new members, without registration          3" in printed
    assert "kill -9 of the gateway: away for                        2.3 s" in printed
