"""The time left of a case, and the lines that show it where there is no terminal."""

import io

import pytest
from rich.console import Console

from benchmarks.progress import CaseProgress, minutes


def progress(expected_s: float = 0.0) -> CaseProgress:
    return CaseProgress("group-joins", 5, expected_s, Console(file=io.StringIO()))


def test_the_time_left_follows_from_the_last_run_of_the_case() -> None:
    assert progress(expected_s=100.0).left_s(number=2, elapsed_s=30.0) == 70.0
    assert progress(expected_s=100.0).left_s(number=5, elapsed_s=130.0) == 0.0


def test_the_time_left_of_a_new_case_follows_from_its_rounds() -> None:
    assert progress().left_s(number=1, elapsed_s=10.0) is None
    assert progress().left_s(number=3, elapsed_s=20.0) == pytest.approx(30.0)


def test_without_a_terminal_there_is_one_line_for_each_round(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(expected_s=300.0) as shown:
        for number in (0, 1, 1, 2):
            shown.attempt("1,000 members", "kafka", number)

    assert capsys.readouterr().out.splitlines() == [
        "benchmarks:   group-joins, round 1 of 5, about 5 min left",
        "benchmarks:   group-joins, round 2 of 5, about 5 min left",
    ]


@pytest.mark.parametrize(("seconds", "shown"), [(12.4, "12 s"), (99.0, "99 s"), (600.0, "10 min")])
def test_long_times_are_shown_in_minutes(seconds: float, shown: str) -> None:
    assert minutes(seconds) == shown
