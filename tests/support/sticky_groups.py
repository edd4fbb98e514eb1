"""Groups with a past, for the sticky assignors; and what the best assignment would be, found by trying all."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from hypothesis import strategies as st

from holdfast.assignors.cooperative_sticky import CooperativeStickyAssignor
from holdfast.assignors.interface import NO_GENERATION, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.sticky import StickyAssignor
from holdfast.assignors.sticky_family import StickyFamily

Partition = tuple[str, int]
Group = tuple[Cluster, dict[str, MemberSubscription]]

FAMILY = (StickyAssignor, CooperativeStickyAssignor)


def by_topic(names: str | Iterable[Partition]) -> dict[str, list[int]]:
    """``"t1-0 t2-1"`` as partitions by topic."""
    found: dict[str, list[int]] = {}
    pairs = (
        ((name.rsplit("-", 1)[0], int(name.rsplit("-", 1)[1])) for name in names.split())
        if isinstance(names, str)
        else names
    )
    for topic, number in pairs:
        found.setdefault(topic, []).append(number)
    return found


def encoded(partitions: Mapping[str, Sequence[int]]) -> str:
    """Partitions by topic as ``"t1-0 t2-1"``."""
    return " ".join(f"{topic}-{number}" for topic in sorted(partitions) for number in partitions[topic])


def answers(assignments: Mapping[str, MemberAssignment]) -> dict[str, str]:
    return {member: encoded(given.partitions) for member, given in assignments.items()}


def subscriptions_of(
    kind: type[StickyFamily], topics: Sequence[str], owned: Mapping[str, Sequence[int]], generation: int = NO_GENERATION
) -> MemberSubscription:
    """The subscription of a member that was given ``owned`` in that generation, as that assignor encodes it."""
    if kind is CooperativeStickyAssignor:
        return MemberSubscription(topics, owned=owned, generation=generation)
    assignor = StickyAssignor()
    if owned:
        assignor.on_assignment(MemberAssignment(owned), generation)
    return MemberSubscription(topics, assignor.subscription_user_data(topics))


def owners(assignments: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[Partition, str]:
    """Of every partition its one owner."""
    found: dict[Partition, str] = {}
    for member, partitions in assignments.items():
        for topic, numbers in partitions.items():
            for number in numbers:
                assert (topic, number) not in found, f"{topic}-{number}: {found[topic, number]} and {member}"
                found[topic, number] = member
    return found


def true_owners(group: Group, claims: Mapping[str, tuple[Mapping[str, Sequence[int]], int]]) -> dict[Partition, str]:
    """Whose claims count, partition by partition: the newest, if it is the only one, and if it is still subscribed."""
    cluster, subscriptions = group
    found = {}
    for topic, count in cluster.partitions.items():
        for number in range(count):
            claimants = [
                (generation, member) for member, (owned, generation) in claims.items() if number in owned.get(topic, ())
            ]
            newest = [member for generation, member in claimants if generation == max(claimants)[0]]
            if len(newest) == 1 and topic in subscriptions[newest[0]].topics:
                found[topic, number] = newest[0]
    return found


def badness(group: Group, assigned: Mapping[Partition, str], before: Mapping[Partition, str]) -> tuple[list[int], int]:
    """How uneven, loads in descending order; then how many partitions moved."""
    totals = dict.fromkeys(group[1], 0)
    for member in assigned.values():
        totals[member] += 1
    moved = sum(assigned[partition] != owner for partition, owner in before.items())
    return sorted(totals.values(), reverse=True), moved


def least_badness(group: Group, before: Mapping[Partition, str]) -> tuple[list[int], int]:
    """By trying every possible assignment."""
    cluster, subscriptions = group
    partitions = [(topic, number) for topic, count in cluster.partitions.items() for number in range(count)]
    readers = {
        topic: [member for member, reported in subscriptions.items() if topic in reported.topics]
        for topic in cluster.partitions
    }
    wanted = [partition for partition in partitions if readers[partition[0]]]
    choices = product(*(readers[topic] for topic, _ in wanted))
    return min(badness(group, dict(zip(wanted, choice, strict=True)), before) for choice in choices)


Claims = dict[str, tuple[dict[str, list[int]], int]]


@st.composite
def small_groups(draw: st.DrawFn, kind: type[StickyFamily]) -> tuple[Group, Claims]:
    """At most four members and six partitions, with claims that may be stale, contested or about what is not there."""
    topics = ["a", "b", "c"]
    counts: dict[str, int] = {}
    for topic in topics:
        counts[topic] = draw(st.integers(0, min(4, 6 - sum(counts.values()))))
    members = [f"m{number}" for number in range(draw(st.integers(1, 4)))]
    equal = draw(st.booleans())
    some = st.lists(st.sampled_from(topics), min_size=1, max_size=3, unique=True)
    same = draw(some)
    claim = st.dictionaries(
        st.sampled_from([*topics, "gone"]), st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)
    )
    claims = {member: (draw(claim), draw(st.integers(-1, 2))) for member in members}
    subscriptions = {
        member: subscriptions_of(kind, same if equal else draw(some), owned, generation)
        for member, (owned, generation) in claims.items()
    }
    return (Cluster(counts), subscriptions), claims
