"""The page on performance says what the stored rounds say, and says it plainly when a target is missed."""

from pathlib import Path

import pytest

from benchmarks.cases import CASES, requests, start, throughput
from benchmarks.measure import ECHO, HOLDFAST, KAFKA, Failure, Result, Row, alternating
from benchmarks.render import PAGE, render, render_page
from benchmarks.results import RESULTS, load, store
from benchmarks.tables import figure, number

QUIET = {"cores": 2, "load_before": 0.1}


def rounds(series: str, server: str, **values: list[float]) -> list[Row]:
    """One row per round; each name has its values in the order of the rounds."""
    return [
        Row(series, server, index + 1, {name: of_rounds[index] for name, of_rounds in values.items()})
        for index in range(len(next(iter(values.values()))))
    ]


def started(holdfast_s: list[float], kafka_s: list[float]) -> Result:
    memory = {
        f"{when}_{kind}_mib": [30.0] * len(holdfast_s) for when in ("idle", "connected") for kind in ("rss", "pss")
    }
    cpu = {"start_cpu_s": [1.0] * len(holdfast_s)}
    rows = rounds(start.SERIES, HOLDFAST, start_s=holdfast_s, **cpu, **memory)
    rows += rounds(start.SERIES, KAFKA, start_s=kafka_s, **cpu, **memory)
    return Result("start", {"idle_seconds": 3, "connections": 500}, rows, "2026-01-01", dict(QUIET))


def page_of(result: Result) -> str:
    return render([(case.name, case.title, result if case.name == result.case else None) for case in CASES])


def test_the_page_is_what_the_stored_rounds_say() -> None:
    assert PAGE.read_text() == render_page(), "run `python -m benchmarks.render`"


def test_stored_rounds_contain_no_path_of_the_machine() -> None:
    assert not [path.name for path in RESULTS.glob("*.json") if str(RESULTS.parent.parent) in path.read_text()]


def test_a_ratio_is_formed_within_each_round() -> None:
    # Given a machine that was twice as slow in the second round, for both
    result = started(holdfast_s=[1.0, 2.0, 1.5], kafka_s=[10.0, 20.0, 10.0])

    ratio = result.ratio(start.SERIES, "start_s")

    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((0.1, 0.1, 0.15))


def test_a_round_that_only_one_server_took_has_no_ratio() -> None:
    result = Result("start", {}, rounds(start.SERIES, HOLDFAST, start_s=[1.0]))

    assert result.ratio(start.SERIES, "start_s") is None


@pytest.mark.parametrize(("kafka_s", "verdict"), [(4.0, "| met |"), (3.9, "| **not met** |")])
def test_a_target_is_held_against_the_median_of_the_ratios(kafka_s: float, verdict: str) -> None:
    result = started(holdfast_s=[1.0, 1.0, 1.0, 1.0, 9.0], kafka_s=[kafka_s] * 5)

    (line,) = (line for line in page_of(result).splitlines() if line.startswith("| time from start to ready"))

    assert line.endswith(verdict)


@pytest.mark.parametrize(
    ("rounds_taken", "machine", "note", "line"),
    [
        (5, {"load_before": 0.49}, "", "*5 rounds on 2026-01-01; load average before the run: 0.49.*"),
        (
            5,
            {"load_before": 0.5},
            " (load 0.5)",
            "*5 rounds on 2026-01-01; load average before the run: 0.5.* **Provisional: measured under load.**",
        ),
        (
            1,
            {"load_before": 0.1},
            " (1 round)",
            "*1 round on 2026-01-01; load average before the run: 0.1.*"
            " **Provisional: measured in fewer than 5 rounds.**",
        ),
        (
            5,
            {},
            " (load not recorded)",
            "*5 rounds on 2026-01-01; load average before the run: not recorded.*",
        ),
        (
            5,
            {"load_before": 0.2, "commit": "1234567", "others_during": 0.01},
            "",
            "*5 rounds on 2026-01-01, commit 1234567; load average before the run: 0.2;"
            " CPU use of other processes during the run: 0.01 cores.*",
        ),
    ],
)
def test_the_page_says_how_each_result_was_taken_and_marks_what_is_less(
    rounds_taken: int, machine: dict[str, float | str], note: str, line: str
) -> None:
    result = started([1.0] * rounds_taken, [10.0] * rounds_taken)
    result.machine = {"cores": 2, **machine}

    page = page_of(result).splitlines()

    assert line in page
    (verdict,) = (each for each in page if each.startswith("| time from start to ready"))
    assert verdict.endswith(f"| met{note} |")


def test_a_target_says_in_how_many_rounds_holdfast_failed() -> None:
    result = started([1.0] * 4, [10.0] * 4)
    result.failures = [Failure(start.SERIES, HOLDFAST, 5, "holdfast was not ready within 60 s")]

    (verdict,) = (line for line in page_of(result).splitlines() if line.startswith("| time from start to ready"))

    assert verdict.endswith("| met (failed in 1 of 5 rounds) |")


def test_a_case_without_rounds_says_how_to_take_them() -> None:
    page = page_of(started([1.0], [10.0]))

    assert "Not measured yet. Run `python -m benchmarks --only throughput`." in page
    assert "--only start`" not in page


def test_throughput_names_the_bottleneck() -> None:
    shape = "100 B, 1 partition"
    figures = ("records_per_s", "mb_per_s", "server_cpu_per_million", "client_cpu_per_million")
    rows = [
        row
        for what in ("produce", "consume")
        for server, cores in ((HOLDFAST, (0.2, 0.95)), (KAFKA, (1.0, 0.9)))
        for row in rounds(
            f"{what}, {shape}",
            server,
            server_cores=[cores[0]],
            client_cores=[cores[1]],
            **{name: [5.0] for name in figures},
        )
    ]
    settings = {"records": {shape: 1}, "producer": {}, "consumer": {}, "consume_at_once": 1, "warm_up_seconds": 1}

    page = "\n".join(throughput.section(Result("throughput", settings, rows, machine={"cores": 2})))

    assert page.count("| 0.20 + 0.95 | client |") == 2
    assert page.count("| 1.00 + 0.90 | machine |") == 2


def test_small_requests_are_held_against_the_echo_not_against_kafka() -> None:
    rates = {HOLDFAST: 60.0, ECHO: 100.0, KAFKA: 10.0}
    rows = [row for server, rate in rates.items() for row in rounds(requests.MANY, server, requests_per_s=[rate])]

    (verdict,) = requests.verdicts(Result("requests", {}, rows))

    assert verdict.measured.median == pytest.approx(0.6)
    assert not verdict.met


def test_the_first_server_changes_from_round_to_round() -> None:
    assert alternating((HOLDFAST, KAFKA), 1) == [HOLDFAST, KAFKA]
    assert alternating((HOLDFAST, KAFKA), 2) == [KAFKA, HOLDFAST]


def test_rounds_come_back_from_the_disk_as_they_were(tmp_path: Path) -> None:
    result = started([1.0, 2.0], [3.0, 4.0])

    store(result, tmp_path)

    assert load("start", tmp_path) == result
    assert load("never-measured", tmp_path) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1_234_567, "1.23 M"), (999_400, "999 k"), (12_345, "12 k"), (1234, "1234"), (12.34, "12.3"), (0.5, "0.50")],
)
def test_numbers_have_three_figures(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_figure_is_a_median_with_its_spread() -> None:
    assert figure([30.0, 10.0, 20.0]) == "20.0 [10.0 – 30.0]"
    assert figure([]) == "–"
