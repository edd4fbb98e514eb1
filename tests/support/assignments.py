"""Groups to be assigned, and what must hold of every assignment."""

import random
from collections.abc import Iterator, Mapping, Sequence

from hypothesis import strategies as st

from holdfast.assignors.interface import Cluster, MemberAssignment, MemberSubscription

Group = tuple[Cluster, dict[str, MemberSubscription]]

RACKS = ("a", "b", "c")
# Code points whose order is another in UTF-16, which is how Java compares strings.
_LETTERS = "ab1-é\uffee\U0001f600"


def plain(assignments: Mapping[str, MemberAssignment]) -> dict[str, dict[str, list[int]]]:
    """By member and topic, as lists: for comparing."""
    return {
        member: {topic: list(numbers) for topic, numbers in given.partitions.items()}
        for member, given in assignments.items()
    }


def total(given: MemberAssignment) -> int:
    return sum(len(numbers) for numbers in given.partitions.values())


def pairs(assignments: Mapping[str, MemberAssignment]) -> Iterator[tuple[str, int, str]]:
    """Every (topic, partition, member)."""
    for member, given in assignments.items():
        for topic, numbers in given.partitions.items():
            for number in numbers:
                yield topic, number, member


def check_well_formed(group: Group, assignments: Mapping[str, MemberAssignment]) -> None:
    """Entries for all; lists in order, not empty; nothing twice, nothing that does not exist or was not asked for."""
    cluster, subscriptions = group
    assert assignments.keys() == subscriptions.keys()
    for member, given in assignments.items():
        for topic, numbers in given.partitions.items():
            assert topic in subscriptions[member].topics
            assert numbers
            assert list(numbers) == sorted(set(numbers))
            assert set(numbers) <= set(range(cluster.partitions[topic]))


def check_owners(group: Group, assignments: Mapping[str, MemberAssignment], owners: int = 1) -> None:
    """Every subscribed partition has so many owners, or as many as subscribe to it if that is less."""
    cluster, subscriptions = group
    found: dict[tuple[str, int], int] = {}
    for topic, number, _ in pairs(assignments):
        found[topic, number] = found.get((topic, number), 0) + 1
    wanted = {
        (topic, number): min(owners, readers)
        for topic, count in cluster.partitions.items()
        if (readers := sum(topic in reported.topics for reported in subscriptions.values()))
        for number in range(count)
    }
    assert found == wanted


def spread_of_totals(assignments: Mapping[str, MemberAssignment]) -> int:
    totals = [total(given) for given in assignments.values()]
    return max(totals) - min(totals)


def names() -> st.SearchStrategy[str]:
    return st.text(_LETTERS, min_size=1, max_size=3)


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False, racks: bool = False) -> Group:
    """A small group; `equal`: all members have the same topics. Some topics do not exist, some are named twice."""
    topics = draw(st.lists(names(), min_size=1, max_size=4, unique=True))
    partitions = draw(st.dictionaries(st.sampled_from(topics), st.integers(-1, 9), max_size=4))
    of_partition = st.frozensets(st.sampled_from(RACKS), max_size=3)
    where = {
        topic: draw(st.lists(of_partition, min_size=max(0, count), max_size=max(0, count)))
        for topic, count in (partitions.items() if racks else ())
    }
    subscription = st.lists(st.sampled_from(topics), min_size=0, max_size=5)
    same = draw(subscription) if equal else None
    members = draw(st.lists(names(), min_size=1, max_size=6, unique=True))
    static = draw(st.lists(names(), min_size=len(members), max_size=len(members), unique=True))
    return Cluster(partitions, where), {
        member: MemberSubscription(
            topics=draw(subscription) if same is None else same,
            group_instance_id=instance if draw(st.booleans()) else None,
            rack=draw(st.sampled_from((None, "", *RACKS))) if racks else None,
        )
        for member, instance in zip(members, static, strict=True)
    }


def random_group(seed: int, *, racks: bool) -> Group:
    """The same group for the same seed: for comparing with others at length."""
    rng = random.Random(seed)
    topics = [f"{rng.choice(_LETTERS)}{number}" for number in range(rng.randint(1, 6))]
    counts = [rng.randint(0, 12) for _ in range(rng.randint(1, 3))]
    partitions = {topic: rng.choice(counts) for topic in topics if rng.random() < 0.9}
    of_replicas = rng.randint(1, 2)
    where = {topic: _replica_racks(rng, count, of_replicas) for topic, count in partitions.items() if racks}
    usual = rng.sample(topics, rng.randint(1, len(topics)))
    others = rng.random() * 0.5
    members = {}
    for number in range(rng.randint(1, 9)):
        members[f"{rng.choice(_LETTERS)}{number}"] = MemberSubscription(
            topics=rng.choices(topics, k=rng.randint(0, 4)) if rng.random() < others else rng.sample(usual, len(usual)),
            group_instance_id=f"{rng.choice(_LETTERS)}-{number}" if rng.random() < 0.4 else None,
            rack=rng.choice((None, "", *RACKS)) if racks else None,
        )
    return Cluster(partitions, where), members


def _replica_racks(rng: random.Random, count: int, replicas: int) -> Sequence[frozenset[str]]:
    if rng.random() < 0.1:
        return []  # not known
    return [frozenset(rng.sample(RACKS, replicas)) for _ in range(count)]


def shuffled(group: Group, seed: int) -> Group:
    """The same group, its members and topics in another order."""
    cluster, subscriptions = group
    rng = random.Random(seed)
    topics = rng.sample(list(cluster.partitions), len(cluster.partitions))
    members = rng.sample(list(subscriptions), len(subscriptions))
    return (
        Cluster({topic: cluster.partitions[topic] for topic in topics}, cluster.racks),
        {member: subscriptions[member] for member in members},
    )
