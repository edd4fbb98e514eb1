"""The groups of the benchmarks are what their names say, and the page shows the worst of their events."""

import pytest

from benchmarks.assignor_groups import EVENTS, GENERATION, Shape, group_of
from benchmarks.cases import assignors
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row
from holdfast.assignors import assignor
from tests.support.assignments import check_owners, check_well_formed, total

SHAPE = Shape(topics=5, partitions=10, members=20)
BY_NAME = {event.name: event for event in EVENTS}


@pytest.mark.parametrize(
    ("event", "members", "with_partitions"),
    [
        ("full", 20, 0),
        ("stable", 20, 20),
        ("one joins", 20, 19),
        ("many join", 20, 18),
        ("one leaves", 19, 19),
        ("many leave", 18, 18),
        ("partitions added", 20, 20),
    ],
)
def test_an_event_has_so_many_members_of_which_so_many_had_something(
    event: str, members: int, with_partitions: int
) -> None:
    _, subscriptions = group_of(SHAPE, BY_NAME[event], "cooperative-sticky")

    assert len(subscriptions) == members
    assert (
        sum(reported.generation == GENERATION and bool(reported.owned) for reported in subscriptions.values())
        == with_partitions
    )


def test_eager_members_claim_what_they_had_in_their_user_data() -> None:
    cluster, subscriptions = group_of(SHAPE, BY_NAME["stable"], "sticky")

    assert all(reported.user_data and not reported.owned for reported in subscriptions.values())
    # and it is understood: everybody keeps what it had, also those whose turn it would not be
    first, *others = subscriptions
    alone = assignor("sticky").assign(cluster, {first: subscriptions[first], "zzz": subscriptions[others[0]]})
    assert total(alone[first]) >= 2


def test_added_partitions_had_no_owner_before() -> None:
    cluster, subscriptions = group_of(SHAPE, BY_NAME["partitions added"], "cooperative-sticky")

    assert set(cluster.partitions.values()) == {10}
    assert (
        max(number for reported in subscriptions.values() for owned in reported.owned.values() for number in owned) == 8
    )


def test_unequal_members_have_a_fifth_of_the_topics_and_more() -> None:
    _, subscriptions = group_of(Shape(5, 10, 20, equal=False), BY_NAME["full"], "sticky")

    assert sorted({len(reported.topics) for reported in subscriptions.values()}) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("contest", assignors.contests(Plan(rounds=1, quick=True)), ids=lambda one: one.strategy)
def test_every_contest_can_be_held(contest: assignors.Contest) -> None:
    group = group_of(SHAPE, contest.events[-1], contest.strategy)

    answer = assignors._make(contest, group).assign(*group)

    check_well_formed(group, answer)
    if contest.strategy != "cooperative-sticky":
        check_owners(group, answer)


def result(*ratios: float, capped: bool = False) -> Result:
    rows = []
    for number, ratio in enumerate(ratios):
        series = f"sticky, a shape: event {number}"
        rows += [Row(series, HOLDFAST, 1, {"ms": ratio * 100}), Row(series, KAFKA, 1, {"ms": 100.0})]
        if capped:
            rows[-1].values["capped"] = 1.0
    settings = {
        "cap_seconds": 120,
        "slow_seconds": 10,
        "warm_up_runs": 5,
        "jvm_options": ["-Xmx4G"],
        "contests": [["sticky", "a shape", [f"event {number}" for number in range(len(ratios))]]],
    }
    return Result("assignors", settings, rows)


def test_the_worst_event_decides() -> None:
    (verdict,) = assignors.verdicts(result(0.5, 1.2, 0.9))

    assert verdict.what == "sticky, a shape: time ÷ Java (event 1)"
    assert not verdict.met
    assert assignors.verdicts(result(0.5, 0.9))[0].met


def test_a_run_that_was_ended_is_shown_as_at_least_that_long() -> None:
    assert "| ≥ 100 [100 – 100] |" in "\n".join(assignors.section(result(0.5, capped=True)))
    assert "≥" not in "\n".join(assignors.section(result(0.5)))
