"""The exponent of a cost, and the pages and plots that show it."""

import contextlib
import math
import re
from collections.abc import Iterator

import pytest

from benchmarks import by_size, plots
from benchmarks.by_size import Cost, Shown, exponent, exponents, series, take_rounds, verdicts
from benchmarks.cases import CASES, Case
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row
from benchmarks.render import PAGE, PICTURES, failure_lines, render_pictures
from benchmarks.servers import Broker

SIZES = [100, 1000, 10_000]
COST = Cost("cpu_s", "a heartbeat of every member", "server CPU s")
BY_SIZE = [case for case in CASES if case.name.startswith("size-")]


def measured(*rounds: dict[int, float], server: str = HOLDFAST) -> list[Row]:
    """One dictionary for each round: the cost by size."""
    return [
        Row(series(size, "members"), server, number, {"cpu_s": cost})
        for number, costs in enumerate(rounds, 1)
        for size, cost in costs.items()
    ]


def result_of(rows: list[Row]) -> Result:
    return Result("size-heartbeats", {"sizes": SIZES, "unit": "members"}, rows)


def costs(of: float) -> dict[int, float]:
    """With exactly this exponent."""
    return {size: 1e-5 * size**of for size in SIZES}


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_the_power(slope: float) -> None:
    assert exponent(SIZES, [3.0 * size**slope for size in SIZES]) == pytest.approx(slope)


def test_the_exponent_is_computed_in_each_round() -> None:
    found = exponents(result_of(measured(costs(0.9), costs(1.0), costs(1.3))), HOLDFAST, "cpu_s")

    assert found is not None
    assert (found.of_all.median, found.of_all.low, found.of_all.high) == pytest.approx((1.0, 0.9, 1.3))


def test_a_fixed_cost_does_not_hide_what_grows_quadratically() -> None:
    # Given a quadratic cost that a fixed one exceeds at the smaller sizes
    quadratic = {size: 1.0 + 1e-6 * size**2 for size in SIZES}

    found = exponents(result_of(measured(quadratic)), HOLDFAST, "cpu_s")

    assert found is not None
    assert found.of_all.median <= by_size.TARGET.value < found.of_last_step.median
    assert found.steepest.median == pytest.approx(math.log10((1 + 100) / (1 + 1)))
    assert found.steepest.median > found.of_all.median


@pytest.mark.parametrize(("slope", "met"), [(1.0, True), (1.09, True), (1.11, False), (2.0, False)])
def test_a_cost_must_not_grow_faster_than_linearly(slope: float, met: bool) -> None:
    (verdict,) = verdicts(result_of(measured(costs(slope))), [COST])

    assert verdict.what == "a heartbeat of every member, 100 to 10,000 members: exponent"
    assert verdict.met is met


@pytest.mark.parametrize("sizes", [[100, 1000, 10_000], [10, 1000, 10_000], [100, 1000, 5000, 20_000]])
def test_a_cost_of_n_log_n_is_worse_than_linear(sizes: list[int]) -> None:
    rows = [Row(series(size, "members"), HOLDFAST, 1, {"cpu_s": size * math.log(size)}) for size in sizes]

    (verdict,) = verdicts(Result("size-heartbeats", {"sizes": sizes, "unit": "members"}, rows), [COST])

    assert not verdict.met


def test_a_server_that_fails_at_the_largest_size_has_an_exponent_of_the_others() -> None:
    rows = measured(costs(1.0)) + measured({100: 1.0, 1000: 10.0}, server=KAFKA)

    lines = by_size.tables(result_of(rows), [Shown("cpu_s", "CPU s")], [COST], Shown("cpu_s", "CPU"))

    (line,) = (line for line in lines if line.startswith("| a heartbeat of every member, Apache Kafka"))
    assert "| 100 to 1,000 | 1.00 [1.00 – 1.00] |" in line


# -- rounds ------------------------------------------------------------------------------------------------------------


class FakeBroker:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_killed = False

    def __str__(self) -> str:
        return self.name

    def kill(self) -> None:
        self.is_killed = True


@pytest.fixture
def started() -> list[FakeBroker]:
    """In the order of the sizes."""
    return []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, started: list[FakeBroker]) -> list[tuple[str, int]]:
    @contextlib.contextmanager
    def both(*_: object) -> Iterator[dict[str, FakeBroker]]:
        pair = [FakeBroker(HOLDFAST), FakeBroker(KAFKA)]
        started.extend(pair)
        yield {broker.name: broker for broker in pair}

    monkeypatch.setattr(by_size, "both", both)
    monkeypatch.setattr(by_size, "settle", lambda: None)
    return []


def taken(plan: Plan, asked: list[tuple[str, int]], unprepared: tuple[str, int], failing: tuple[str, int]) -> list[Row]:
    def prepare(broker: Broker, size: int) -> None:
        if (str(broker), size) == unprepared:
            raise RuntimeError("too many open files")

    def measure(broker: Broker, size: int, _: None) -> dict[str, float]:
        asked.append((str(broker), size))
        if (str(broker), size) == failing:
            raise RuntimeError("the group did not become stable in time")
        return {"cpu_s": float(size)}

    return take_rounds(plan, SIZES, "members", {}, prepare, measure)


def test_sizes_and_servers_take_turns_within_a_round(asked: list[tuple[str, int]]) -> None:
    taken(Plan(2, quick=True), asked, ("", 0), ("", 0))

    first = [(server, size) for size in SIZES for server in (HOLDFAST, KAFKA)]
    assert asked == [*first, *reversed(first)]


def test_a_server_that_cannot_be_prepared_for_a_size_is_measured_at_the_others(
    asked: list[tuple[str, int]], started: list[FakeBroker]
) -> None:
    plan = Plan(2, quick=True)

    rows = taken(plan, asked, (KAFKA, 10_000), ("", 0))

    assert (KAFKA, 10_000) not in asked
    assert [broker.is_killed for broker in started] == [False] * 5 + [True]
    assert len(rows) == 10
    assert [(failure.series, failure.round, failure.reason) for failure in plan.failures] == [
        ("10,000 members", 0, "too many open files")
    ]


def test_a_server_that_failed_twice_at_a_size_is_not_asked_for_it_again(asked: list[tuple[str, int]]) -> None:
    plan = Plan(5, quick=True)

    rows = taken(plan, asked, ("", 0), (KAFKA, 10_000))

    assert asked.count((KAFKA, 10_000)) == 2
    assert asked.count((HOLDFAST, 10_000)) == 5
    assert len(rows) == 25
    result = result_of(rows)
    result.failures = plan.failures
    assert "- Failed on Apache Kafka in 2 of 2 rounds (10,000 members)" in "\n".join(failure_lines(result))


# -- plots -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def svg() -> str:
    return plots.plot(result_of(measured(costs(1.0), costs(1.1)) + measured(costs(0.8), server=KAFKA)), [COST])


def test_the_same_rounds_give_the_same_picture(svg: str) -> None:
    again = plots.plot(result_of(measured(costs(1.0), costs(1.1)) + measured(costs(0.8), server=KAFKA)), [COST])

    assert svg == again
    # And the control: other rounds give another one
    assert svg != plots.plot(result_of(measured(costs(1.0), costs(1.2))), [COST])


def test_a_picture_is_small_and_has_text_and_no_background(svg: str) -> None:
    assert len(svg) < 25_000
    texts = set(re.findall(r"<text[^>]*>([^<]+)</text>", svg))
    assert {"Holdfast", "Apache Kafka", "linear", "members", "100", "1,000", "10,000"} <= texts
    # Dark on dark, or light on light, is what a picture must not be: it is shown on pages of both
    colours = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", svg))
    assert not colours & {"#000000", "#ffffff"}
    assert not re.search(r"\d{4}-\d\d-\d\d", svg)


def test_a_server_without_rounds_has_no_line() -> None:
    svg = plots.plot(result_of(measured(costs(1.0))), [COST])

    assert "Apache Kafka" not in svg


def test_the_pictures_of_the_page_are_what_the_stored_rounds_say() -> None:
    for name, picture in render_pictures().items():
        assert (PAGE.parent / PICTURES / name).read_text() == picture, "run `python -m benchmarks.render`"


# -- the cases ---------------------------------------------------------------------------------------------------------


def test_there_is_a_case_for_members_groups_and_partitions() -> None:
    assert [case.name for case in BY_SIZE] == [
        "size-heartbeats",
        "size-commits",
        "size-joins",
        "size-partitions",
        "size-start",
    ]


@pytest.mark.parametrize("case", BY_SIZE, ids=lambda case: case.name)
def test_every_case_shows_its_picture_and_its_exponents(case: Case) -> None:
    figures = ["requests_per_s", "p99_us", "server_cpu_per_million", "each_cpu_s", "seconds", "generations"]
    figures += ["server_cpu_s", "cpu_s", "rss_mib", "produce_per_s", "produce_cpu_per_million", "each_produce_cpu_s"]
    figures += ["metadata_cpu_s"]
    unit = {"size-commits": "groups", "size-partitions": "partitions", "size-start": "partitions"}.get(
        case.name, "members"
    )
    rows = [
        Row(series(size, unit), server, number, dict.fromkeys(figures, float(size)))
        for number in (1, 2)
        for size in SIZES
        for server in (HOLDFAST, KAFKA)
    ]
    settings = dict.fromkeys(
        ("partitions", "seconds", "warm_up_seconds", "warm_ups", "per_topic", "connections", "record_bytes"), 1
    )
    result = Result(case.name, {**settings, "sizes": SIZES, "unit": unit}, rows)

    page = "\n".join(case.section(result))

    assert f"(images/{case.name}.svg)" in page
    assert list(case.pictures(result)) == [f"{case.name}.svg"]
    assert page.count(" to 10,000 |" + " 1.00 [1.00 – 1.00] |" * 3) == 2 * len(case.verdicts(result))
    assert all(verdict.met for verdict in case.verdicts(result))
    assert "–" not in [cell.strip() for line in page.splitlines() for cell in line.split("|")]
