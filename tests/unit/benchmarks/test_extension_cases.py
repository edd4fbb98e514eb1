"""The cases about what Holdfast has beyond Kafka hold every round to their targets, and show the controls beside it."""

import pytest

from benchmarks.cases import CASES, forming, growth, idle_extensions, scale_up, takeover
from benchmarks.extension_members import CONFLUENT
from benchmarks.measure import HOLDFAST, KAFKA, Result, Row
from benchmarks.render import render


def page_of(result: Result) -> str:
    return render([(case.name, case.title, result if case.name == result.case else None) for case in CASES])


def scaled_up(*registered: float) -> Result:
    rows = [
        Row(scale_up.series(family, 4), name, number, {"rebalances": count, "revocations": 4, "shared_s": 1.0})
        for family in scale_up.FAMILIES
        for name, counts in {scale_up.REGISTERED: registered, HOLDFAST: (4,), KAFKA: (5,)}.items()
        for number, count in enumerate(counts, 1)
    ]
    settings = {"sizes": [4], "seconds": 20, "heartbeat_ms": 3000, "session_ms": 45_000}
    return Result(scale_up.NAME, settings, rows)


def formed(stable_ms: float, trips: float) -> Result:
    figures = {"joined_ms": 5.0, "stable_ms": stable_ms, "round_trip_ms": 1.0, "join_round_trips": trips}
    rows = [Row(forming.SERIES, name, 1, figures) for name in (forming.REGISTERED, HOLDFAST, KAFKA)]
    return Result(forming.NAME, {"members": 100}, rows)


def taken_over(idle_s: float, rebalances: float, revocations: float, stopped_s: float = 10.5) -> Result:
    figures = {"rebalances": rebalances, "revocations": revocations, "most_revocations": revocations}
    idle = {takeover.FOLLOWER: idle_s, takeover.LEADER: idle_s, takeover.STOPPED: stopped_s}
    rows = [
        Row(takeover.series(CONFLUENT, loss), name, 1, figures | {"idle_s": idle[loss]})
        for loss in takeover.FAILURES
        for name in (takeover.STANDBY, HOLDFAST, KAFKA)
    ]
    return Result(takeover.NAME, {"families": [CONFLUENT]}, rows)


def grown(*rebalances: float) -> Result:
    rows = [
        Row(
            growth.series(family, added),
            how,
            number,
            {"rebalances": count, "calls": 9, "uncalled": 10, "revocations": 0, "shared_s": 2},
        )
        for family in growth.FAMILIES
        for added, ways in ((growth.MANY, growth.ways_of(family)), (growth.FEW, (growth.OURS,)))
        for how in ways
        for number, count in enumerate(rebalances, 1)
    ]
    return Result(growth.NAME, {"members": 20, "few": growth.FEW}, rows)


def idled(registered: float, standbys: float, heartbeat: float) -> Result:
    idle = {idle_extensions.NONE: 2.0, idle_extensions.REGISTERED: registered, idle_extensions.STANDBYS: standbys}
    beats = {idle_extensions.MEMBER: 50.0, idle_extensions.STANDBY: heartbeat}
    rows = [Row(series, HOLDFAST, 1, {"cpu_ms_per_s": value}) for series, value in idle.items()]
    rows += [
        Row(f"{idle_extensions.HEARTBEAT} {whose}", HOLDFAST, 1, {"server_cpu_per_million": value})
        for whose, value in beats.items()
    ]
    return Result(idle_extensions.NAME, {"count": 1000, "seconds": 10}, rows)


@pytest.mark.parametrize(("registered", "met"), [((1, 1, 1), True), ((1, 1, 2), False)])
def test_every_registered_scale_up_must_take_one_rebalance(registered: tuple[float, ...], met: bool) -> None:
    verdicts = scale_up.verdicts(scaled_up(*registered))

    assert [verdict.met for verdict in verdicts] == [met] * len(scale_up.FAMILIES)


@pytest.mark.parametrize(
    ("stable_ms", "trips", "met"), [(40, 1, [True, True]), (3_040, 1, [True, False]), (40, 2, [False, True])]
)
def test_a_registered_group_must_form_without_delay(stable_ms: float, trips: float, met: list[bool]) -> None:
    assert [verdict.met for verdict in forming.verdicts(formed(stable_ms, trips))] == met


@pytest.mark.parametrize(
    ("figures", "met"),
    [
        ((3.0, 0, 0), [True, True, True]),
        ((4.1, 0, 0), [False, True, True]),
        ((3.0, 1, 0), [True, False, True]),
        ((3.0, 0, 1), [True, True, False]),
    ],
)
def test_a_standby_must_take_over_soon_and_unnoticed(figures: tuple[float, float, float], met: list[bool]) -> None:
    verdicts = takeover.verdicts(taken_over(*figures))

    assert [verdict.met for verdict in verdicts] == [*met, *met, True]


def test_a_paused_member_must_not_be_replaced_before_its_session_ends() -> None:
    *_, verdict = takeover.verdicts(taken_over(3.0, 0, 0, stopped_s=4.0))

    assert not verdict.met


@pytest.mark.parametrize(("rebalances", "met"), [((0, 0, 0), True), ((0, 1, 0), False)])
def test_a_topic_that_grows_must_never_cost_a_rebalance(rebalances: tuple[float, ...], met: bool) -> None:
    verdicts = growth.verdicts(grown(*rebalances))

    assert [verdict.met for verdict in verdicts] == [met] * 2 * len(growth.RESYNC)


@pytest.mark.parametrize(
    ("figures", "met"),
    [
        ((3.0, 3.0, 55.0), [True, True, True]),
        ((30.0, 3.0, 55.0), [False, True, True]),
        ((3.0, 3.0, 70.0), [True, True, False]),
    ],
)
def test_idle_extensions_must_cost_nothing(figures: tuple[float, float, float], met: list[bool]) -> None:
    assert [verdict.met for verdict in idle_extensions.verdicts(idled(*figures))] == met


@pytest.mark.parametrize(
    "result", [scaled_up(1), formed(40, 1), taken_over(3.0, 0, 0), grown(0), idled(3.0, 3.0, 55.0)]
)
def test_every_section_shows_all_that_was_measured(result: Result) -> None:
    page = page_of(result)

    assert "–" not in [cell.strip() for line in page.splitlines() for cell in line.split("|")]
