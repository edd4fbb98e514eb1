"""The cases about groups hold what was measured to their targets, and show it with its unit."""

import pytest

from benchmarks.cases import CASES, group_bounce, group_commits, group_heartbeats, group_joins, group_reload
from benchmarks.measure import HOLDFAST, KAFKA, Result, Row
from benchmarks.render import render
from benchmarks.tables import Verdict


def page_of(result: Result) -> str:
    return render([(case.name, case.title, result if case.name == result.case else None) for case in CASES])


def line_of(page: str, beginning: str) -> str:
    (line,) = (line for line in page.splitlines() if line.startswith(beginning))
    return line


def joins(seconds: dict[str, float]) -> Result:
    others = dict.fromkeys(("generations", "requests", "server_cpu_s", "client_cpu_s", "server_cpu_per_million"), 2.0)
    rows = [
        Row(group_joins.series(50), name, 1, {"seconds": took, "members": 50, **others})
        for name, took in seconds.items()
    ]
    return Result(group_joins.NAME, {"sizes": [50], "warm_ups": 1, "message_max_bytes": 1}, rows)


def bounced(rebalances: float, gap_s: float) -> Result:
    figures = {"rebalances": rebalances, "gap_s": gap_s, "quiet_gap_s": 0.1, "away_s": 1.0, "seconds": 9.0}
    rows = [
        Row(series, server, 1, figures)
        for series in (group_bounce.STATIC, group_bounce.DYNAMIC)
        for server in (HOLDFAST, KAFKA)
    ]
    bounces = {group_bounce.STATIC: 40, group_bounce.DYNAMIC: 3}
    settings = {"members": 40, "partitions": 200, "bounces": bounces, "heartbeat_ms": 3000}
    return Result(group_bounce.NAME, settings, rows)


def reloaded(loaded_s: float, lost: float) -> Result:
    figures = {"loaded_s": loaded_s, "ready_s": 1.0, "cpu_s": 5.0, "rss_mib": 300.0, "lost": lost}
    rows = [Row(group_reload.SERIES, server, 1, figures) for server in (HOLDFAST, KAFKA)]
    return Result(group_reload.NAME, {"groups": 10, "offsets": 2, "journal_partitions": 50}, rows)


@pytest.mark.parametrize(("holdfast_s", "met"), [(1.0, True), (1.01, False)])
def test_members_must_join_in_no_more_than_kafkas_time(holdfast_s: float, met: bool) -> None:
    (verdict,) = group_joins.verdicts(joins({HOLDFAST: holdfast_s, KAFKA: 1.0}))

    assert verdict.met is met


@pytest.mark.parametrize(
    ("rebalances", "gap_s", "met"), [(0, 0.19, [True, True]), (1, 0.19, [False, True]), (0, 0.21, [True, False])]
)
def test_a_rolling_restart_must_cause_neither_a_rebalance_nor_a_pause(
    rebalances: float, gap_s: float, met: list[bool]
) -> None:
    verdicts = group_bounce.verdicts(bounced(rebalances, gap_s))

    assert [verdict.met for verdict in verdicts] == met


@pytest.mark.parametrize(
    ("loaded_s", "lost", "met"), [(4.0, 0, [True, True]), (4.1, 0, [False, True]), (1.0, 1, [True, False])]
)
def test_a_reload_must_be_done_in_time_and_lose_nothing(loaded_s: float, lost: float, met: list[bool]) -> None:
    verdicts = group_reload.verdicts(reloaded(loaded_s, lost))

    assert [verdict.met for verdict in verdicts] == met


@pytest.mark.parametrize(
    ("holdfast", "met"),
    [((40.0, 100.0, 20.0), [True, True, True]), ((39.0, 101.0, 20.1), [False, False, False])],
)
def test_heartbeats_are_held_to_a_rate_a_percentile_and_cpu_time(
    holdfast: tuple[float, float, float], met: list[bool]
) -> None:
    figures = ("requests_per_s", "p99_us", "server_cpu_per_million")
    of_servers = {HOLDFAST: holdfast, KAFKA: (50.0, 100.0, 20.0)}
    rows = [
        Row(group_heartbeats.SERIES, name, 1, dict(zip(figures, values, strict=True)))
        for name, values in of_servers.items()
    ]

    verdicts = group_heartbeats.verdicts(Result(group_heartbeats.NAME, {}, rows))

    assert [verdict.met for verdict in verdicts] == met


@pytest.mark.parametrize(("holdfast", "met"), [((70.0, 130.0), [True, True]), ((69.0, 131.0), [False, False])])
def test_commits_are_held_to_a_rate_and_cpu_time(holdfast: tuple[float, float], met: list[bool]) -> None:
    rows = [
        Row(group_commits.SERIES, name, 1, {"requests_per_s": rate, "server_cpu_per_million": cpu})
        for name, (rate, cpu) in {HOLDFAST: holdfast, KAFKA: (100.0, 100.0)}.items()
    ]

    verdicts = group_commits.verdicts(Result(group_commits.NAME, {}, rows))

    assert [verdict.met for verdict in verdicts] == met


def test_a_target_that_is_no_ratio_is_shown_with_its_unit() -> None:
    page = page_of(reloaded(3.5, 0))

    line = line_of(page, "| reload of 10 groups × 2 offsets after kill -9 |")

    assert line.endswith("| ≤ 4 s | **3.50 s** [3.50 – 3.50] | met (load not recorded, 1 round) |")


@pytest.mark.parametrize("result", [joins({HOLDFAST: 1.0, KAFKA: 2.0}), bounced(0, 0.1), reloaded(1.0, 0)])
def test_every_section_shows_both_servers(result: Result) -> None:
    page = page_of(result)

    assert "| Holdfast | Apache Kafka |" in page
    assert "–" not in [cell.strip() for line in page.splitlines() for cell in line.split("|")]


def test_a_case_that_was_measured_on_one_server_only_has_no_verdict_against_kafka() -> None:
    verdicts: list[Verdict] = group_joins.verdicts(joins({HOLDFAST: 1.0}))

    assert verdicts == []
