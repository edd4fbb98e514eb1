"""Groups over many rounds: members join, leave, pause, forget and lie; topics come, grow and go.

Whatever happens, nobody is given what another has, and everything that somebody subscribes to has an owner (in a
cooperative group: once those who lost something have joined again). Then another round changes nothing.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.assignors.cooperative_sticky import CooperativeStickyAssignor
from holdfast.assignors.interface import NO_GENERATION, Cluster, MemberSubscription
from holdfast.assignors.sticky import StickyAssignor
from holdfast.assignors.sticky_family import StickyFamily
from holdfast.assignors.sticky_user_data import encode
from tests.support.assignments import check_owners, check_well_formed
from tests.support.sticky_groups import owners

TOPICS = ["a", "b", "c", "d"]
# One in which they lie, one that revokes, one that hands over, one that finds nothing more to do.
_MAX_ROUNDS = 4
some_topics = st.lists(st.sampled_from(TOPICS), min_size=1, max_size=4, unique=True)
any_claims = st.dictionaries(
    st.sampled_from([*TOPICS, "never"]),
    st.lists(st.one_of(st.integers(-1, 9), st.sampled_from([-(2**31), 2**31 - 1])), max_size=6),
)


class OneMember:
    """What a member has, knows, and says."""

    def __init__(self, kind: type[StickyFamily], topics: list[str]) -> None:
        self.assignor = kind()
        self.topics = topics
        self.owned: dict[str, list[int]] = {}
        self.generation = NO_GENERATION
        self.lie: MemberSubscription | None = None

    def subscription(self) -> MemberSubscription:
        if self.lie is not None:
            return self.lie
        user_data = self.assignor.subscription_user_data(self.topics)
        if isinstance(self.assignor, CooperativeStickyAssignor):
            return MemberSubscription(self.topics, user_data, self.owned, self.generation)
        return MemberSubscription(self.topics, user_data)


class Rounds(RuleBasedStateMachine):
    kind: type[StickyFamily]

    @initialize(equal=st.booleans(), counts=st.lists(st.integers(1, 8), min_size=4, max_size=4))
    def begin(self, equal: bool, counts: list[int]) -> None:
        self.equal = equal
        self.counts = dict(zip(TOPICS, counts, strict=True))
        self.members: dict[str, OneMember] = {}
        self.paused: dict[str, OneMember] = {}
        self.generation = 0
        self.born = 0

    @rule(topics=some_topics, count=st.integers(1, 3))
    def join(self, topics: list[str], count: int) -> None:
        for _ in range(count):
            self.born += 1
            self.members[f"m{self.born * 7919 % 100:02d}"] = OneMember(self.kind, TOPICS if self.equal else topics)
        self.rebalance()

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if len(self.members) > 1:
            del self.members[data.draw(st.sampled_from(sorted(self.members)))]
            self.rebalance()

    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        """It is thrown out, and does not know."""
        if len(self.members) > 1:
            name = data.draw(st.sampled_from(sorted(self.members)))
            self.paused[name] = self.members.pop(name)
            self.rebalance()

    @rule()
    def come_back(self) -> None:
        self.members |= self.paused
        self.paused = {}
        self.rebalance()

    @rule(data=st.data(), topics=some_topics)
    def subscribe_to_others(self, data: st.DataObject, topics: list[str]) -> None:
        if self.members and not self.equal:
            self.members[data.draw(st.sampled_from(sorted(self.members)))].topics = topics
            self.rebalance()

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(0, 9))
    def topic_changes(self, topic: str, count: int) -> None:
        """It grows, is deleted, or made again, perhaps smaller."""
        self.counts[topic] = count
        self.rebalance()

    @rule(data=st.data(), claims=any_claims, generation=st.integers(-1, 99), garbage=st.none() | st.binary(max_size=30))
    def lie(self, data: st.DataObject, claims: dict[str, list[int]], generation: int, garbage: bytes | None) -> None:
        if self.members:
            liar = self.members[data.draw(st.sampled_from(sorted(self.members)))]
            if isinstance(liar.assignor, CooperativeStickyAssignor):
                liar.lie = MemberSubscription(liar.topics, garbage, claims, generation)
            else:
                user_data = garbage if garbage is not None else encode(claims, generation)
                liar.lie = MemberSubscription(liar.topics, user_data, claims, generation)
            self.rebalance()

    def rebalance(self) -> None:
        if not self.members:
            return
        cluster = Cluster({topic: count for topic, count in self.counts.items() if count})
        for _ in range(_MAX_ROUNDS):
            if not self.one_round(cluster):
                return
        raise AssertionError(f"still moving after {_MAX_ROUNDS} rounds")

    def one_round(self, cluster: Cluster) -> bool:
        """Whether somebody lost something and so joins again."""
        reported = {name: member.subscription() for name, member in self.members.items()}
        group = (cluster, reported)
        given = self.kind().assign(cluster, reported)

        check_well_formed(group, given)
        found = owners({name: assignment.partitions for name, assignment in given.items()})
        before = {name: member.owned for name, member in self.members.items()}
        lied = any(member.lie is not None for member in self.members.values())
        self.generation += 1
        for name, member in self.members.items():
            member.lie = None
            member.owned = {topic: list(numbers) for topic, numbers in given[name].partitions.items()}
            member.generation = self.generation
            on_assignment = member.assignor.on_assignment  # type: ignore[attr-defined]
            on_assignment(given[name], self.generation)
        if self.kind is StickyAssignor:
            check_owners(group, given)
            return False
        if not lied:
            for (topic, number), name in found.items():
                others = [other for other, had in before.items() if other != name and number in had.get(topic, ())]
                assert not others or number in before[name].get(topic, ()), f"{topic}-{number} from {others} to {name}"
        revoked = [
            name
            for name, had in before.items()
            if any(set(had[t]) - set(given[name].partitions.get(t, ())) for t in had)
        ]
        if not revoked and not lied:
            check_owners(group, given)
        return bool(revoked) or lied

    @invariant()
    def another_round_changes_nothing(self) -> None:
        if not getattr(self, "members", None):
            return
        cluster = Cluster({topic: count for topic, count in self.counts.items() if count})
        reported = {name: member.subscription() for name, member in self.members.items()}
        again = self.kind().assign(cluster, reported)
        assert {name: given.partitions for name, given in again.items()} == {
            name: m.owned for name, m in self.members.items()
        }
        check_owners((cluster, reported), again)


class StickyRounds(Rounds):
    kind = StickyAssignor


class CooperativeRounds(Rounds):
    kind = CooperativeStickyAssignor


_SETTINGS = settings(max_examples=25, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck))
TestStickyRounds = StickyRounds.TestCase
TestStickyRounds.settings = _SETTINGS
TestCooperativeRounds = CooperativeRounds.TestCase
TestCooperativeRounds.settings = _SETTINGS
