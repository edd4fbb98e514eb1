"""The cases about the gateway hold what was measured to their targets, and show every way with its figures."""

import pytest

from benchmarks.cases import CASES, gateway_commits, gateway_router, gateway_start
from benchmarks.cases.gateway_commits import many_groups, one_group
from benchmarks.cases.gateway_router import CONSUME, PRODUCE, TLS
from benchmarks.measure import HOLDFAST, KAFKA, Result, Row
from benchmarks.render import render
from holdfast.wire.group_records import partition_for


def page_of(result: Result) -> str:
    return render([(case.name, case.title, result if case.name == result.case else None) for case in CASES])


def routed(consumed_mb_per_s: float, produced_mb_per_s: float, consumed_cpu: float, produced_cpu: float) -> Result:
    """Kafka alone reaches 100 MB/s."""
    measured = {CONSUME: (consumed_mb_per_s, consumed_cpu), PRODUCE: (produced_mb_per_s, produced_cpu)}
    common = dict.fromkeys(("client_cpu_per_gb", "client_cores", "kafka_cpu_per_gb", "kafka_cores"), 0.5)
    rows = []
    for series, (mb_per_s, cpu) in measured.items():
        gateway = {"gateway_cpu_per_gb": cpu, "gateway_cores": 0.4, "gateway_rss_mib": 50.0}
        rows += [
            Row(series, KAFKA, 1, {"mb_per_s": 100.0, **common}),
            Row(series, HOLDFAST, 1, {"mb_per_s": mb_per_s, **common, **gateway}),
            Row(series, TLS, 1, {"mb_per_s": mb_per_s / 2, **common, **gateway}),
        ]
    settings = {"records": 10, "record_bytes": 1000, "partitions": 12, "warm_up_seconds": 1}
    return Result(gateway_router.NAME, settings, rows)


def committed(p50_us: float, p99_us: float, commits_per_cpu_s: float) -> Result:
    """Kafka takes 1 ms, and 10 ms at the 99th percentile."""
    rows = []
    for partitions in gateway_commits.PARTITIONS:
        rows += [
            Row(one_group(partitions), HOLDFAST, 1, {"p50_us": p50_us, "p99_us": p99_us}),
            Row(one_group(partitions), KAFKA, 1, {"p50_us": 1000.0, "p99_us": 10_000.0}),
        ]
        load = {"commits_per_cpu_s": commits_per_cpu_s, "requests_per_s": 1.0, "server_cores": 0.5}
        rows.append(Row(many_groups(partitions), HOLDFAST, 1, {**load, "p50_us": 1.0, "p99_us": 2.0}))
    settings = {"seconds": 1, "warm_up_seconds": 1, "brokers": 3, "groups": 100, "partitions": [4, 10]}
    return Result(gateway_commits.NAME, settings, rows)


def started(served_s: float, lost: float) -> Result:
    figures = {"records": 200.0, "ready_s": 1.0, "first_s": 1.5, "served_s": served_s, "cpu_s": 1.0, "rss_mib": 60.0}
    settings = {"brokers": 3, "groups": 10, "offsets": 20, "state_partitions": 32}
    return Result(gateway_start.NAME, settings, [Row(gateway_start.SERIES, HOLDFAST, 1, {**figures, "lost": lost})])


@pytest.mark.parametrize(
    ("measured", "met"),
    [
        ((80.0, 80.0, 0.7, 1.5), [True, True, True, True]),
        ((79.0, 80.0, 0.7, 1.5), [False, True, True, True]),
        ((80.0, 80.0, 0.71, 1.5), [True, False, True, True]),
        ((80.0, 79.0, 0.7, 1.51), [True, True, False, False]),
    ],
)
def test_a_gateway_is_held_to_a_rate_and_to_cpu_time_per_gigabyte(
    measured: tuple[float, float, float, float], met: list[bool]
) -> None:
    verdicts = gateway_router.verdicts(routed(*measured))

    assert [verdict.met for verdict in verdicts] == met


def test_tls_is_shown_with_its_rate_and_has_no_target() -> None:
    result = routed(90.0, 90.0, 0.5, 1.0)

    lines = [line for line in page_of(result).splitlines() if line.startswith("| through the gateway, with TLS |")]

    assert len(lines) == 2
    assert all("**0.45×**" in line and "≥" not in line and "≤" not in line for line in lines)


@pytest.mark.parametrize(
    ("measured", "met"),
    [((1300.0, 13_000.0, 5000.0), [True, True, True]), ((1301.0, 13_001.0, 4999.0), [False, False, False])],
)
def test_commits_are_held_to_kafkas_latency_and_to_cpu_time(
    measured: tuple[float, float, float], met: list[bool]
) -> None:
    verdicts = gateway_commits.verdicts(committed(*measured))

    assert [verdict.met for verdict in verdicts] == met


@pytest.mark.parametrize(("served_s", "lost", "met"), [(5.0, 0, [True, True]), (5.1, 1, [False, False])])
def test_a_cold_start_must_be_done_in_time_and_lose_nothing(served_s: float, lost: float, met: list[bool]) -> None:
    verdicts = gateway_start.verdicts(started(served_s, lost))

    assert [verdict.met for verdict in verdicts] == met


@pytest.mark.parametrize("result", [routed(90.0, 90.0, 0.5, 1.0), committed(1.0, 2.0, 3.0), started(1.0, 0)])
def test_every_section_shows_all_its_figures(result: Result) -> None:
    cells = [cell.strip() for line in page_of(result).splitlines() for cell in line.split("|")]

    assert "–" not in cells


def test_rounds_that_failed_have_no_verdict() -> None:
    for case in (gateway_router, gateway_commits, gateway_start):
        assert case.verdicts(Result(case.NAME, {}, [])) == []


def test_every_partition_of_the_state_has_a_group_that_commits_after_a_start() -> None:
    chosen = gateway_start.one_of_each_partition(gateway_start.group_names(1000))

    assert sorted(partition_for(name, 32) for name in chosen) == list(range(32))
