"""What the demo takes for a failure and reports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from examples.demo.collect_figures import Figures
from examples.demo.figures import RecordCounts
from examples.demo.report import print_table, unexpected, write_report

NONE = RecordCounts(lost=0, duplicated=0, delayed=70, delayed_elsewhere=0)
STATIC = Figures(True, "s", 1_000, 3, 0, 0, 0, NONE, 3, 1)
CONTROL = Figures(False, "d", 1_000, 3, 5, 8, 4_321, replace(NONE, duplicated=9, delayed_elsewhere=7), 3, 3)


def test_static_members_without_and_a_control_with_rebalances_are_as_expected() -> None:
    assert unexpected([STATIC, CONTROL]) == []


@pytest.mark.parametrize(
    ("half", "said"),
    [
        (replace(STATIC, rebalances=1), "static: rebalances is 1"),
        (replace(STATIC, moved=2), "static: partitions_moved is 2"),
        (replace(STATIC, loaded_bytes=9), "static: bytes_of_state_loaded is 9"),
        (replace(STATIC, counts=replace(NONE, duplicated=1)), "static: records_duplicated is 1"),
        (replace(STATIC, counts=replace(NONE, lost=1)), "static: records_lost is 1"),
        (replace(STATIC, scale_up_rebalances=2), "static: rebalances_by_the_scale_up is 2"),
        (replace(STATIC, scale_up_rebalances=0), "static: rebalances_by_the_scale_up is 0"),
        (replace(CONTROL, rebalances=0), "dynamic: rebalances is 0"),
        (replace(CONTROL, moved=0), "dynamic: partitions_moved is 0"),
        (replace(CONTROL, loaded_bytes=0), "dynamic: bytes_of_state_loaded is 0"),
        (replace(CONTROL, counts=replace(NONE, lost=3)), "dynamic: records_lost is 3"),
        (replace(CONTROL, scale_up_rebalances=1), "dynamic: rebalances_by_the_scale_up is 1"),
    ],
)
def test_each_figure_that_must_hold_is_missed(half: Figures, said: str) -> None:
    others = [one for one in (STATIC, CONTROL) if one.static != half.static]

    assert unexpected([half, *others]) == [said]


def test_the_table_and_the_report_have_the_same_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"

    print_table([STATIC, CONTROL])
    write_report(path, [STATIC, CONTROL], 201.26, [])

    report = json.loads(path.read_text())
    assert (report["seconds"], report["as_expected"], report["complaints"]) == (201.3, True, [])
    assert report["static"] == STATIC.figures() and report["dynamic"] == CONTROL.figures()
    printed = capsys.readouterr().out
    assert "bytes of state loaded                                   0                4,321" in printed
    assert "records processed twice                                 0                    9" in printed
