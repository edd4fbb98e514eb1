"""A server that fails costs its own rounds only: the reason is stored and shown, and everything else goes on."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks import machine, quiet
from benchmarks.cases import CASES, Case, group_joins
from benchmarks.measure import HOLDFAST, KAFKA, Failure, Plan, Result, Row, Unavailable
from benchmarks.render import render
from benchmarks.results import load, store

STUCK = "the group did not become stable in time"


@dataclass(frozen=True)
class FakeServer:
    name: str


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The joins of fake servers, of which Kafka's never form a group of 5,000 members after the first."""
    asked: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def both(*_: object) -> Iterator[dict[str, FakeServer]]:
        yield {HOLDFAST: FakeServer(HOLDFAST), KAFKA: FakeServer(KAFKA)}

    def join(server: FakeServer, members: int) -> dict[str, float]:
        asked.append((server.name, members))
        if server.name == KAFKA and members == 5000 and asked.count((KAFKA, 5000)) > 1:
            raise RuntimeError(STUCK)
        return dict.fromkeys(("seconds", "generations", "requests", "server_cpu_s", "client_cpu_s"), float(members)) | {
            "server_cpu_per_million": 1.0
        }

    monkeypatch.setattr(group_joins, "both", both)
    monkeypatch.setattr(group_joins, "_round", join)
    return asked


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def page_of(result: Result) -> str:
    return render([(case.name, case.title, result if case.name == result.case else None) for case in CASES])


def test_a_server_that_fails_does_not_end_the_rounds_of_the_others(joins: list[tuple[str, int]]) -> None:
    plan = Plan(rounds=3, quick=False)

    result = group_joins.run(plan)

    # Then Kafka was asked in every round, and Holdfast's rounds are complete
    assert joins.count((KAFKA, 5000)) == 3
    assert len(result.values(group_joins.series(5000), HOLDFAST, "seconds")) == 3
    assert len(result.values(group_joins.series(5000), KAFKA, "seconds")) == 1
    assert plan.failures == [
        Failure(group_joins.series(5000), KAFKA, 2, STUCK),
        Failure(group_joins.series(5000), KAFKA, 3, STUCK),
    ]


def test_ratios_are_formed_from_the_rounds_that_both_completed(joins: list[tuple[str, int]]) -> None:
    result = group_joins.run(Plan(rounds=3, quick=False))

    complete = result.ratio(group_joins.series(1000), "seconds")
    interrupted = result.ratio(group_joins.series(5000), "seconds")

    assert complete is not None
    assert interrupted is not None
    assert (complete.count, interrupted.count) == (3, 1)


def test_the_page_says_which_server_failed_how_often_and_why(joins: list[tuple[str, int]]) -> None:
    plan = Plan(rounds=3, quick=False)
    result = replace(group_joins.run(plan), failures=plan.failures)

    assert f"- Failed on Apache Kafka in 2 of 3 rounds (5,000 static members): {STUCK}" in page_of(result).splitlines()
    # And the control: without failures there is no such line
    assert "- Failed on" not in page_of(replace(result, failures=[]))


def test_a_warm_up_that_fails_is_recorded_and_the_rounds_are_tried(joins: list[tuple[str, int]]) -> None:
    plan = Plan(rounds=1, quick=False)

    with plan.attempt("joins", KAFKA, 0):
        raise RuntimeError(STUCK)
    result = replace(group_joins.run(plan), failures=plan.failures)

    assert "- Failed on Apache Kafka in the warm-up (joins)" in page_of(result)
    assert result.has(group_joins.series(5000), KAFKA)


def test_a_reason_is_one_line_without_the_log_of_the_server() -> None:
    plan = Plan(rounds=1, quick=True)

    with plan.attempt("start", KAFKA, 1):
        raise RuntimeError("it ended with exit code 1; its log ends with:\n/home/somebody/kafka: no space left")
    with plan.attempt("start", KAFKA, 2):
        raise TimeoutError

    assert [failure.reason for failure in plan.failures] == [
        "it ended with exit code 1; its log ends with:",
        "TimeoutError",
    ]


def test_a_machine_without_a_compiler_is_no_failure_of_a_server() -> None:
    plan = Plan(rounds=1, quick=True)

    with pytest.raises(Unavailable), plan.attempt("joins", KAFKA, 1):
        raise Unavailable("no C compiler")

    assert plan.failures == []


def test_failures_come_back_from_the_disk(tmp_path: Path) -> None:
    failed = Failure("joins", KAFKA, 2, STUCK)
    result = Result("group-joins", {}, [Row("joins", HOLDFAST, 1, {"seconds": 1.0})], failures=[failed], seconds=12.5)

    store(result, tmp_path)

    assert load("group-joins", tmp_path) == result


@pytest.mark.parametrize("case", [case for case in CASES if load(case.name)], ids=lambda case: case.name)
def test_every_section_can_be_shown_with_rounds_missing(case: Case) -> None:
    stored = load(case.name)
    assert stored is not None
    # Given any row that is missing, or all rows of a server, or all of a series
    kept = [[*stored.rows[:index], *stored.rows[index + 1 :]] for index in range(min(20, len(stored.rows)))]
    kept += [[row for row in stored.rows if row.server != server] for server in {row.server for row in stored.rows}]
    kept += [[row for row in stored.rows if row.series != series] for series in {row.series for row in stored.rows}]

    # Then the section and the verdicts are formed from what is there
    for rows in filter(None, kept):
        result = replace(stored, rows=rows)
        assert case.section(result)
        case.verdicts(result)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the command stores, on a machine that is quiet at once."""
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(bench, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(bench, "REPOSITORY", tmp_path)
    monkeypatch.setattr(quiet, "await_quiet", lambda _: 0.1)
    monkeypatch.setattr(quiet, "await_idle", lambda _: 0.0)
    return tmp_path


def replaced(monkeypatch: pytest.MonkeyPatch, **runs: Callable[[Plan], Result]) -> None:
    """The command knows only these cases, by the names of cases with underscores, with other runs."""
    cases = [replace(case_of(name.replace("_", "-")), run=run) for name, run in runs.items()]
    monkeypatch.setattr(bench, "CASES", cases)


def test_the_command_continues_after_a_failed_case_and_reports_it(
    joins: list[tuple[str, int]], results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: Plan) -> Result:
        raise RuntimeError("holdfast was not ready within 60 s")

    replaced(monkeypatch, start=broken, group_joins=group_joins.run)

    assert bench.main(["--rounds", "2"]) == 1

    said = capsys.readouterr().out
    assert "start failed: RuntimeError: holdfast was not ready within 60 s" in said
    assert f"group-joins, 5,000 static members: kafka failed in round 2: {STUCK}" in said
    assert load("start", results) is None
    stored = load("group-joins", results)
    assert stored is not None
    assert [failure.reason for failure in stored.failures] == [STUCK]
    assert stored.machine["load_before"] == 0.1


def test_the_command_ends_with_zero_if_every_round_was_measured(
    joins: list[tuple[str, int]], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, group_joins=group_joins.run)

    assert bench.main(["--rounds", "1"]) == 0


def test_stored_rounds_stay_if_nothing_could_be_measured(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = Result("start", {"idle_seconds": 3, "connections": 5}, [Row("start", HOLDFAST, 1, {"start_s": 1.0})])
    store(earlier, results)

    def all_fail(plan: Plan) -> Result:
        with plan.attempt("start", HOLDFAST, 1):
            raise RuntimeError("no space left on device")
        return Result("start", {}, [])

    replaced(monkeypatch, start=all_fail)

    assert bench.main(["--rounds", "1"]) == 1
    assert load("start", results) == earlier


def test_a_machine_that_does_not_become_quiet_is_not_measured_unless_allowed(
    joins: list[tuple[str, int]], results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_: object) -> float:
        raise quiet.Busy("the load average is 4.2")

    replaced(monkeypatch, group_joins=group_joins.run)
    monkeypatch.setattr(quiet, "await_quiet", busy)
    monkeypatch.setattr(quiet, "load_average", lambda: 4.2)

    assert bench.main(["--rounds", "1"]) == bench.NOT_QUIET
    assert joins == []

    bench.main(["--rounds", "1", "--allow-load"])
    stored = load("group-joins", results)
    assert stored is not None
    assert stored.machine["load_before"] == 4.2
    assert "Provisional: measured in fewer than 5 rounds and under load." in page_of(stored)


@pytest.mark.parametrize(
    ("changed", "runs"),
    [
        ({}, False),
        ({"machine": {"load_before": 0.6, "commit": "abc"}}, True),
        ({"machine": {"load_before": 0.1, "commit": "another"}}, True),
        ({"machine": {"load_before": 0.1}}, True),
        ({"failures": [Failure("joins", KAFKA, 1, STUCK)]}, True),
    ],
)
def test_only_results_that_are_as_good_as_new_are_skipped(
    joins: list[tuple[str, int]],
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, object],
    runs: bool,
) -> None:
    replaced(monkeypatch, group_joins=group_joins.run)
    monkeypatch.setattr(machine, "has_same_source", lambda commit: commit == "abc")
    fresh = group_joins.run(Plan(rounds=1, quick=False))
    fresh.machine = {"load_before": 0.1, "commit": "abc"}
    store(Result(**{**vars(fresh), **changed}), results)
    joins.clear()

    bench.main(["--rounds", "1", "--skip-fresh"])

    assert bool(joins) is runs
