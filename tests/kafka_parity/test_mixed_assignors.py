"""Groups of `holdfast.Consumer` with Java's consumer and with librdkafka: any of them leads, the others follow.

Who leads is the one that came first. A leader reads what clients of another hand wrote, and these read what it decided;
in every step of a group's life the assignment must be what it would be among members of one kind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.assignors import NO_GENERATION, Cluster, MemberSubscription, assignor
from holdfast.assignors.sticky_user_data import PreviousAssignment, Reader
from holdfast.client.descriptions import MemberDescription
from holdfast.wire.consumer_protocol import decode_subscription, encode_subscription
from tests.client_compat.servers import Server
from tests.groups.members import GroupClient
from tests.kafka_parity.mixed_group import (
    CLIENT_IDS,
    JAVA,
    LIBRDKAFKA,
    OURS,
    MixedGroup,
    max_kept,
    numbers,
    revoked,
    stayed,
)
from tests.support.assignments import plain
from tests.support.holdfast_broker import HoldfastBroker

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

PARTITIONS, GROWN = 9, 12
SHORT_SESSION_MS = 10_000
"""For a member that is to lose its membership."""
MAX_GENERATIONS = {"range": 2, "roundrobin": 2, "sticky": 2, "cooperative-sticky": 4}
"""For one change. An eager group needs one, a cooperative one two, and another if somebody was late to let go."""

PAIRS = [
    *((JAVA, name) for name in ("range", "roundrobin", "sticky", "cooperative-sticky")),
    # librdkafka has no eager sticky assignor.
    *((LIBRDKAFKA, name) for name in ("range", "roundrobin", "cooperative-sticky")),
]


@pytest.mark.parametrize("ours_leads", [True, False], ids=["ours-leads", "ours-follows"])
@pytest.mark.parametrize(("other", "name"), PAIRS, ids=lambda value: value if isinstance(value, str) else value.name)
def test_members_come_and_go_and_the_topic_grows(
    server: Server, tmp_path: Path, other: GroupClient, name: str, ours_leads: bool
) -> None:
    first, second = (OURS, other) if ours_leads else (other, OURS)
    with MixedGroup(server, name, tmp_path, PARTITIONS) as group:
        # given a leader and a follower of another client
        group.start(first)
        with Step(group):
            follower = group.start(second)

        # when one more of each comes
        with Step(group):
            group.start(first)
        with Step(group):
            group.start(second)

        # and one of those that are no leader goes
        with Step(group):
            group.stop(follower)

        # and partitions are added
        with Step(group, fewest_generations=0 if _may_resync(server, name, ours_leads) else 1):
            group.grow(GROWN)

        # then every step was right by itself, and the same one led through all of them
        leaders = {one.clients[one.leader] for one in group.generations() if one.leader is not None}
        assert leaders == {CLIENT_IDS[first.name]}


@pytest.mark.parametrize(("leading", "sleeping"), [(OURS, JAVA), (JAVA, OURS)], ids=lambda client: client.name)
def test_kip_341_a_stale_claim_loses_to_the_newer_one(
    server: Server, tmp_path: Path, leading: GroupClient, sleeping: GroupClient
) -> None:
    """KAFKA-7026: the one that slept claims, of an older generation, just what the newcomer was given meanwhile."""
    with MixedGroup(server, "sticky", tmp_path, PARTITIONS, SHORT_SESSION_MS) as group:
        # given a member that is paused until it has lost its membership, and another that replaced it
        group.start(leading)
        sleeper = group.start(sleeping)
        had = sleeper.owned
        sleeper.suspend()
        group.members.remove(sleeper)
        group.settle()
        newcomer = group.start(leading)
        assert newcomer.owned == had
        before = group.assignments()

        # when it wakes up and joins
        group.members.append(sleeper)
        sleeper.resume()
        group.settle()

        # then its claim was stale
        claims = {frozenset(numbers(member, group.topic)): claim(member) for member in group.described().members}
        stale, newer = claims[frozenset(sleeper.owned)], claims[frozenset(newcomer.owned)]
        assert set(stale.partitions.tolist()) == set(newer.partitions.tolist()) == had
        assert NO_GENERATION < stale.generation < newer.generation
        # and the others kept all that balance let them keep, the newcomer of what both claimed
        assert newcomer.owned < had
        after = group.assignments()
        assert stayed(before, after) == max_kept(before, after, PARTITIONS)
        assert group.leader() == CLIENT_IDS[leading.name]


def claim(member: MemberDescription) -> PreviousAssignment:
    """The claim that it sent to its leader."""
    return Reader().read(decode_subscription(member.metadata).user_data)


def _may_resync(server: Server, assignor: str, ours_leads: bool) -> bool:
    """Our leader adds new partitions without a rebalance, if its server can and the assignor takes nothing away.

    librdkafka's members may join again on their own."""
    return ours_leads and isinstance(server, HoldfastBroker) and assignor != "range"


class Step:
    """One change of a group: everything that must hold of what it came to."""

    def __init__(self, group: MixedGroup, *, fewest_generations: int = 1) -> None:
        self._group = group
        self._fewest = fewest_generations

    def __enter__(self) -> None:
        self._before = self._group.assignments()
        self._revoked = {id(member): len(revoked(member)) for member in self._group.members}
        self._generation = self._group.generations()[-1].number

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None:
            return
        self._check_generations()
        self._check_bytes()
        if self._group.assignor in ("range", "roundrobin"):
            self._check_leader_independence()
        else:
            self._check_minimal_moves()
        if self._group.assignor == "cooperative-sticky":
            self._check_no_needless_revocation()

    def _check_generations(self) -> None:
        took = self._group.generations()[-1].number - self._generation
        assert self._fewest <= took <= MAX_GENERATIONS[self._group.assignor]

    def _check_bytes(self) -> None:
        """A live member's words are what ours would say with the same in mind: nothing is lost, and nothing added."""
        for member in self._group.described().members:
            # librdkafka writes empty strings for null, and its own user data: that it is understood shows below.
            if member.client_id != CLIENT_IDS[LIBRDKAFKA.name]:
                assert encode_subscription(decode_subscription(member.metadata)) == member.metadata

    def _check_leader_independence(self) -> None:
        members = self._group.described().members
        topic = self._group.topic
        cluster = Cluster({topic: self._group.partitions})
        subscriptions = {member.member_id: MemberSubscription([topic]) for member in members}
        expected = plain(assignor(self._group.assignor).assign(cluster, subscriptions))
        assert {member.member_id: {topic: sorted(numbers(member, topic))} for member in members} == expected

    def _check_minimal_moves(self) -> None:
        after = self._group.assignments()
        assert stayed(self._before, after) == max_kept(self._before, after, self._group.partitions)

    def _check_no_needless_revocation(self) -> None:
        for member, (index, assignment) in zip(self._group.members, self._group.assignments().items(), strict=True):
            gone = revoked(member)[self._revoked.get(id(member), 0) :]
            assert set().union(*gone) == self._before.get(index, set()) - assignment
