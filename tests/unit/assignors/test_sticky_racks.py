"""Racks in a sticky group (KIP-881): as near as balance allows, and never at the cost of the balance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.assignors.cooperative_sticky import CooperativeStickyAssignor
from holdfast.assignors.interface import Cluster, MemberSubscription
from holdfast.assignors.sticky import StickyAssignor
from holdfast.assignors.sticky_family import StickyFamily
from tests.support.assignments import check_owners, check_well_formed, spread_of_totals
from tests.support.sticky_groups import FAMILY, answers, by_topic, subscriptions_of

Kind = type[StickyFamily]

both = pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.name)

COUNTS = {"t1": 6, "t2": 7, "t3": 2}
NEAR = {
    "c1": "t1-0 t1-3 t2-0 t2-3 t2-6",
    "c2": "t1-1 t1-4 t2-1 t2-4 t3-0",
    "c3": "t1-2 t1-5 t2-2 t2-5 t3-1",
}
FAR = {
    "c1": "t1-0 t1-1 t1-2 t1-3 t1-4",
    "c2": "t1-5 t2-0 t2-1 t2-2 t2-3",
    "c3": "t2-4 t2-5 t2-6 t3-0 t3-1",
}


def one_replica_each() -> Cluster:
    """Racks a, b and c in turn, over all topics."""
    racks = ("a", "b", "c")
    turn = iter(range(sum(COUNTS.values())))
    return Cluster(
        COUNTS, {topic: [frozenset({racks[next(turn) % 3]}) for _ in range(count)] for topic, count in COUNTS.items()}
    )


def members(kind: Kind, owned: dict[str, str], racks: dict[str, str | None]) -> dict[str, MemberSubscription]:
    found = {}
    for member, partitions in owned.items():
        base = subscriptions_of(kind, list(COUNTS), by_topic(partitions), 1)
        found[member] = MemberSubscription(base.topics, base.user_data, base.owned, base.generation, racks[member])
    return found


IN_RACKS: dict[str, str | None] = {"c1": "a", "c2": "b", "c3": "c"}
NO_RACKS: dict[str, str | None] = dict.fromkeys(IN_RACKS)


@both
@pytest.mark.parametrize("owned", [dict.fromkeys(NEAR, ""), NEAR])
def test_every_member_gets_and_keeps_near_partitions(kind: Kind, owned: dict[str, str]) -> None:
    assert answers(kind().assign(one_replica_each(), members(kind, owned, IN_RACKS))) == NEAR


def test_what_is_far_is_given_up_for_what_is_near() -> None:
    found = StickyAssignor().assign(one_replica_each(), members(StickyAssignor, FAR, IN_RACKS))
    assert answers(found) == NEAR
    # The control: members that name no rack keep what they have.
    assert answers(StickyAssignor().assign(one_replica_each(), members(StickyAssignor, FAR, NO_RACKS))) == FAR


def test_a_cooperative_group_comes_to_it_in_two_rounds() -> None:
    kind = CooperativeStickyAssignor
    first = answers(kind().assign(one_replica_each(), members(kind, FAR, IN_RACKS)))
    assert first == {"c1": "t1-0 t1-3", "c2": "t2-1", "c3": "t2-5 t3-1"}
    assert answers(kind().assign(one_replica_each(), members(kind, first, IN_RACKS))) == NEAR


@both
def test_a_member_near_to_nothing_gets_as_many_partitions(kind: Kind) -> None:
    nowhere: dict[str, str | None] = {"c1": "a", "c2": "b", "c3": "elsewhere"}
    found = kind().assign(one_replica_each(), members(kind, dict.fromkeys(NEAR, ""), nowhere))
    assert spread_of_totals(found) == 0
    assert answers(found)["c1"] == NEAR["c1"]


@both
@pytest.mark.parametrize("everywhere", [frozenset("abc"), frozenset("xyz"), frozenset[str]()])
def test_racks_that_are_the_same_for_all_partitions_change_nothing(kind: Kind, everywhere: frozenset[str]) -> None:
    cluster = Cluster(COUNTS, {topic: [everywhere] * count for topic, count in COUNTS.items()})
    assert answers(kind().assign(cluster, members(kind, FAR, IN_RACKS))) == FAR


racks_of_partition = st.frozensets(st.sampled_from("abc"), max_size=3)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_with_any_racks_all_is_given_once_evenly_and_then_stays(data: st.DataObject) -> None:
    counts = data.draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 6), min_size=1))
    # Fewer racks than partitions are known: the rest are taken for nowhere.
    racks = {topic: data.draw(st.lists(racks_of_partition, max_size=count)) for topic, count in counts.items()}
    cluster = Cluster(counts, racks)
    names = [f"m{number}" for number in range(data.draw(st.integers(1, 5)))]
    rack_of = {name: data.draw(st.sampled_from((None, "", "a", "b", "c", "d"))) for name in names}
    owned: dict[str, dict[str, list[int]]] = {name: {} for name in names}
    for generation in (1, 2, 3):
        base = {name: subscriptions_of(StickyAssignor, list(counts), owned[name], generation) for name in names}
        subscriptions = {
            name: MemberSubscription(list(counts), base[name].user_data, rack=rack_of[name]) for name in names
        }
        found = StickyAssignor().assign(cluster, subscriptions)
        check_well_formed((cluster, subscriptions), found)
        check_owners((cluster, subscriptions), found)
        assert spread_of_totals(found) <= 1
        if generation == 3:
            assert {name: dict(found[name].partitions) for name in names} == owned
        owned = {name: {topic: list(numbers) for topic, numbers in found[name].partitions.items()} for name in names}
