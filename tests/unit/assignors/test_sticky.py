"""Sticky and cooperative-sticky alike, by the numbered behaviours of Kafka's own; and what sticky has alone."""

from itertools import permutations

import pytest

from holdfast.assignors.cooperative_sticky import CooperativeStickyAssignor
from holdfast.assignors.interface import Cluster, MemberAssignment, MemberSubscription, RebalanceProtocol
from holdfast.assignors.sticky import StickyAssignor
from holdfast.assignors.sticky_family import StickyFamily
from tests.support.sticky_groups import FAMILY, answers, by_topic, owners, subscriptions_of

Kind = type[StickyFamily]

both = pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.name)


def group(kind: Kind, topics: str, **members: tuple[str, int]) -> dict[str, MemberSubscription]:
    """Members that all subscribe to ``topics``, each with what it owns since which generation."""
    return {
        name: subscriptions_of(kind, topics.split(), by_topic(owned), generation)
        for name, (owned, generation) in members.items()
    }


def test_their_names_and_protocols() -> None:
    assert (StickyAssignor.name, StickyAssignor.protocol) == ("sticky", RebalanceProtocol.EAGER)
    assert CooperativeStickyAssignor.name == "cooperative-sticky"
    assert CooperativeStickyAssignor.protocol == RebalanceProtocol.COOPERATIVE


@both
def test_without_owners_partitions_are_distributed_round_robin(kind: Kind) -> None:
    members = group(kind, "t1 t2", c1=("", -1), c2=("", -1))
    assert answers(kind().assign(Cluster({"t1": 3, "t2": 3}), members)) == {
        "c1": "t1-0 t1-2 t2-1",
        "c2": "t1-1 t2-0 t2-2",
    }


@both
def test_no_member_no_assignment(kind: Kind) -> None:
    assert kind().assign(Cluster({"t": 3}), {}) == {}


@both
def test_a_member_at_the_smaller_quota_gets_the_larger(kind: Kind) -> None:
    members = group(kind, "t1 t2", c1=("t1-0 t2-1", 1), c2=("t1-1 t2-2", 1))
    assert answers(kind().assign(Cluster({"t1": 2, "t2": 3}), members)) == {"c1": "t1-0 t2-0 t2-1", "c2": "t1-1 t2-2"}


@both
def test_all_members_below_the_smaller_quota(kind: Kind) -> None:
    members = group(kind, "t1 t2", c1=("t1-0", 1), c2=("t1-1", 1), c3=("", 1))
    found = answers(kind().assign(Cluster({"t1": 2, "t2": 3}), members))
    assert found == {"c1": "t1-0 t2-1", "c2": "t1-1 t2-2", "c3": "t2-0"}


@both
@pytest.mark.parametrize("generation", [9, -1])
def test_a_stale_claim_loses_what_a_newer_one_has(kind: Kind, generation: int) -> None:
    claimed = "t1-0 t1-2 t2-1"
    members = group(kind, "t1 t2", c1=(claimed, 10), c2=(claimed, generation))
    found = answers(kind().assign(Cluster({"t1": 3, "t2": 3}), members))
    assert found == {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"}


@both
def test_an_uncontested_claim_without_a_generation_is_kept(kind: Kind) -> None:
    members = group(kind, "t1 t2", c1=("t1-0", 1), c2=("t1-1", -1), c3=("", 1))
    found = answers(kind().assign(Cluster({"t1": 2, "t2": 3}), members))
    assert found == {"c1": "t1-0 t2-1", "c2": "t1-1 t2-2", "c3": "t2-0"}


@pytest.mark.parametrize(("count", "c1"), [(3, "t-1"), (4, "t-1 t-3")])
def test_claimed_twice_in_one_generation_is_taken_from_both(count: int, c1: str) -> None:
    members = group(StickyAssignor, "t", c1=("t-0 t-1", 5), c2=("t-0 t-2", 5), c3=("", 5))
    assert answers(StickyAssignor().assign(Cluster({"t": count}), members)) == {"c1": c1, "c2": "t-2", "c3": "t-0"}


@both
def test_three_generations(kind: Kind) -> None:
    members = group(kind, "t t2 t3", c1=("t-0 t2-0 t3-0", 10), c2=("t-1 t2-1 t3-1", 9), c3=("t2-1 t3-0 t3-2", 8))
    found = answers(kind().assign(Cluster({"t": 3, "t2": 3, "t3": 3}), members))
    assert found == {"c1": "t-0 t2-0 t3-0", "c2": "t-1 t2-1 t3-1", "c3": "t-2 t2-2 t3-2"}


@both
@pytest.mark.parametrize("generations", list(permutations((8, 9, 10))))
def test_a_partition_claimed_in_three_generations_stays_with_the_newest(
    kind: Kind, generations: tuple[int, ...]
) -> None:
    claims = {f"c{number}": ("t-0", generation) for number, generation in enumerate(generations)}
    found = kind().assign(Cluster({"t": 3}), group(kind, "t", **claims))
    assert found[f"c{generations.index(10)}"].partitions == {"t": [0]}


@both
def test_one_more_member_than_partitions_then_one_leaves(kind: Kind) -> None:
    four = answers(kind().assign(Cluster({"t": 3}), group(kind, "t", **{f"c{n}": ("", -1) for n in range(4)})))
    assert sorted(four.values()) == ["", "t-0", "t-1", "t-2"]
    for gone in four:
        left = {member: (owned, 1) for member, owned in four.items() if member != gone}
        after = answers(kind().assign(Cluster({"t": 3}), group(kind, "t", **left)))
        assert all(four[member] in ("", after[member]) for member in after)
        assert sorted(after.values()) == ["t-0", "t-1", "t-2"]


@both
def test_a_deleted_topic_vanishes_and_the_rest_stays(kind: Kind) -> None:
    members = group(kind, "t1 t2", c1=("t1-0 t2-1", 1), c2=("t1-1 t2-0", 1))
    assert answers(kind().assign(Cluster({"t2": 2}), members)) == {"c1": "t2-1", "c2": "t2-0"}


@both
def test_a_topic_that_its_owner_unsubscribed_from_moves_to_the_subscribers(kind: Kind) -> None:
    members = {
        "c1": subscriptions_of(kind, ["t2"], by_topic("t1-0 t2-0"), 1),
        "c2": subscriptions_of(kind, ["t1", "t2"], by_topic("t2-1"), 1),
    }
    cluster = Cluster({"t1": 1, "t2": 2})
    found = answers(kind().assign(cluster, members))
    # Eager: c1 has given it up already. Cooperative: it still has it, and only loses it now.
    assert found == {"c1": "t2-0", "c2": "t1-0 t2-1" if kind is StickyAssignor else "t2-1"}


def test_kafka_7026_a_paused_consumer_comes_back_with_what_it_had_before() -> None:
    cluster = Cluster({"t": 6})
    c1, c2, c3 = StickyAssignor(), StickyAssignor(), StickyAssignor()
    everybody = {"c1": c1, "c2": c2, "c3": c3}

    def rebalance(generation: int, *members: str) -> dict[str, MemberAssignment]:
        reported = {name: MemberSubscription(["t"], everybody[name].subscription_user_data(["t"])) for name in members}
        given = dict(StickyAssignor().assign(cluster, reported))
        for name in members:
            everybody[name].on_assignment(given[name], generation)
        return given

    # given: three with two each; then one is paused and thrown out, another one leaves, and the last has all
    paused = rebalance(1, "c1", "c2", "c3")["c3"].partitions
    assert paused
    assert spread(rebalance(2, "c1", "c2")) == [3, 3]
    assert spread(rebalance(3, "c2")) == [6]
    # when the paused one returns and claims what c2 has by now
    claimed = c3.subscription_user_data(["t"])
    assert claimed is not None and claimed.endswith(b"\x00\x00\x00\x01")
    after = rebalance(4, "c2", "c3")
    # then nobody has a partition twice, all have an owner, evenly
    assert len(owners({member: given.partitions for member, given in after.items()})) == 6
    assert spread(after) == [3, 3]


def spread(assignments: dict[str, MemberAssignment]) -> list[int]:
    return sorted(sum(map(len, given.partitions.values())) for given in assignments.values())


def test_without_generations_a_paused_consumer_looks_like_the_owner() -> None:
    # The control: before KIP-341 all claims are of no generation, and what two claim has to be taken from both.
    def assigned(now: int, before: int) -> dict[str, str]:
        members = group(StickyAssignor, "t", c2=("t-3 t-4 t-5", now), c3=("t-4 t-5", before))
        return answers(StickyAssignor().assign(Cluster({"t": 6}), members))

    assert assigned(now=-1, before=-1) == {"c2": "t-0 t-2 t-3", "c3": "t-1 t-4 t-5"}
    assert assigned(now=3, before=1) == {"c2": "t-3 t-4 t-5", "c3": "t-0 t-1 t-2"}


@both
@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff" * 40, b"\x7f\xff\xff\xff" * 9])
def test_garbage_owns_nothing(kind: Kind, garbage: bytes) -> None:
    members = group(kind, "t", c1=("t-0 t-1", 1)) | {"c2": MemberSubscription(["t"], garbage)}
    assert answers(kind().assign(Cluster({"t": 4}), members)) == {"c1": "t-0 t-1", "c2": "t-2 t-3"}


def test_sticky_believes_user_data_and_not_the_list_of_owned_partitions() -> None:
    user_data = subscriptions_of(StickyAssignor, ["t"], by_topic("t-0 t-1"), 1).user_data
    members = {
        "c1": MemberSubscription(["t"], user_data, owned={"t": [2, 3]}, generation=9),
        "c2": MemberSubscription(["t"], None, owned={"t": [0, 1]}, generation=9),
    }
    assert answers(StickyAssignor().assign(Cluster({"t": 4}), members)) == {"c1": "t-0 t-1", "c2": "t-2 t-3"}


def test_both_generations_of_a_contested_partition_are_read_from_the_user_data() -> None:
    older, newer = (
        subscriptions_of(StickyAssignor, ["t"], by_topic("t-0"), generation).user_data for generation in (1, 2)
    )
    members = {
        "c1": MemberSubscription(["t"], older, generation=9),
        "c2": MemberSubscription(["t"], newer, generation=1),
    }
    assert answers(StickyAssignor().assign(Cluster({"t": 2}), members)) == {"c1": "t-1", "c2": "t-0"}


def test_an_assignment_of_generation_7_is_claimed_with_generation_7() -> None:
    assignor = StickyAssignor()
    assert assignor.subscription_user_data(["t"]) is None
    assignor.on_assignment(MemberAssignment({"t": [0, 3]}), 7)
    assert assignor.subscription_user_data(["t"]) == bytes.fromhex(
        "00000001 0001 74 00000002 00000000 00000003 00000007"
    )


def test_a_member_that_was_given_nothing_says_so() -> None:
    assignor = StickyAssignor()
    assignor.on_assignment(MemberAssignment({}), 7)
    assert assignor.subscription_user_data(["t"]) == bytes.fromhex("00000000 00000007")


def test_two_consumers_of_one_process_remember_each_its_own() -> None:
    one, other = StickyAssignor(), StickyAssignor()
    one.on_assignment(MemberAssignment({"t": [0]}), 1)
    assert other.subscription_user_data(["t"]) is None
    other.on_assignment(MemberAssignment({"t": [1]}), 2)
    assert one.subscription_user_data(["t"]) == subscriptions_of(StickyAssignor, ["t"], {"t": [0]}, 1).user_data


@both
def test_kip_345_nine_partitions_stay_with_a_b_and_c_through_a_restart_of_a(kind: Kind) -> None:
    cluster = Cluster({"t": 9})

    def member(instance: str, owned: str = "") -> MemberSubscription:
        subscription = subscriptions_of(kind, ["t"], by_topic(owned), 5)
        return MemberSubscription(
            ["t"], subscription.user_data, subscription.owned, subscription.generation, None, instance
        )

    first = answers(kind().assign(cluster, {"1": member("A"), "2": member("B"), "3": member("C")}))
    assert first == {"1": "t-0 t-3 t-6", "2": "t-1 t-4 t-7", "3": "t-2 t-5 t-8"}
    # A restarts: a new member id, and it knows nothing.
    restarted = {"4": member("A"), "2": member("B", first["2"]), "3": member("C", first["3"])}
    assert answers(kind().assign(cluster, restarted)) == {"4": first["1"], "2": first["2"], "3": first["3"]}
    # All restart, in another order: only the instance ids can tell.
    assert answers(kind().assign(cluster, {"7": member("A"), "6": member("B"), "5": member("C")})) == {
        "7": first["1"],
        "6": first["2"],
        "5": first["3"],
    }


@both
def test_without_instance_ids_a_restart_of_all_changes_the_assignment(kind: Kind) -> None:
    cluster = Cluster({"t": 9})
    first = answers(kind().assign(cluster, group(kind, "t", a=("", -1), b=("", -1), c=("", -1))))
    again = answers(kind().assign(cluster, group(kind, "t", z=("", -1), y=("", -1), x=("", -1))))
    assert again["z"] != first["a"]
