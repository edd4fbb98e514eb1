"""What a consumer has: what it gives up before a join, what it says of itself, what an assignment changes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from holdfast.assignors.interface import (
    Assignor,
    Cluster,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
)
from holdfast.membership.owned_partitions import AssignmentChange, OwnedPartitions, Revocation
from holdfast.wire.consumer_protocol import (
    EMPTY_ASSIGNMENT,
    Assignment,
    TopicPartitions,
    decode_subscription,
    encode_assignment,
)
from holdfast.wire.errors import WireError


class Nobody(Assignor):
    name = "nobody"

    def assign(
        self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        return {member: MemberAssignment({}) for member in subscriptions}


class Gentle(Nobody):
    name = "gentle"
    protocol = RebalanceProtocol.COOPERATIVE


def assignment(**partitions: list[int]) -> bytes:
    entries = [TopicPartitions(topic, numbers) for topic, numbers in partitions.items()]
    return encode_assignment(Assignment(entries, b"extra"))


def owned_by(*assignors: Assignor, topics: tuple[str, ...] = ("t", "u")) -> OwnedPartitions:
    owned = OwnedPartitions(assignors or (Nobody(),))
    owned.topics = frozenset(topics)
    return owned


def test_an_eager_member_gives_up_everything_before_it_joins() -> None:
    owned = owned_by(Nobody())
    owned.on_assignment("nobody", 1, assignment(t=[0, 1]))

    assert owned.revoke(lost=False) == Revocation(revoked=[("t", 0), ("t", 1)])
    assert not owned.partitions


def test_a_cooperative_one_gives_up_only_what_it_no_longer_subscribes_to() -> None:
    owned = owned_by(Gentle())
    owned.on_assignment("gentle", 1, assignment(t=[0, 1], u=[2]))
    owned.topics = frozenset({"t"})

    assert owned.revoke(lost=False) == Revocation(revoked=[("u", 2)])
    assert owned.partitions == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("assignor", [Nobody(), Gentle()])
def test_a_lost_generation_loses_all_partitions(assignor: Assignor) -> None:
    owned = owned_by(assignor)
    owned.on_assignment(assignor.name, 1, assignment(t=[0], u=[0]))

    assert owned.revoke(lost=True) == Revocation(lost=[("t", 0), ("u", 0)])
    assert decode_subscription(owned.protocols()[0][1]).generation_id == -1


def test_with_an_eager_strategy_among_them_all_are_eager() -> None:
    assert owned_by(Gentle(), Nobody()).protocol is RebalanceProtocol.EAGER
    assert owned_by(Gentle()).protocol is RebalanceProtocol.COOPERATIVE


def following() -> OwnedPartitions:
    owned = OwnedPartitions([Gentle(), Nobody()], protocol_follows_group=True)
    owned.topics = frozenset({"t"})
    return owned


def test_a_protocol_that_follows_a_cooperative_group_keeps_partitions() -> None:
    owned = following()
    owned.on_assignment("gentle", 1, assignment(t=[0, 1]))

    assert owned.revoke(lost=False) == Revocation()
    assert owned.partitions == {("t", 0), ("t", 1)}


def test_fallback_to_eager_reports_moved_partitions_as_lost() -> None:
    owned = following()
    owned.on_assignment("gentle", 1, assignment(t=[0, 1]))

    assert owned.on_assignment("nobody", 2, assignment(t=[1, 2])) == AssignmentChange([], [("t", 2)], lost=[("t", 0)])
    assert owned.revoke(lost=False) == Revocation(revoked=[("t", 1), ("t", 2)])


def test_a_subscription_has_the_topics_the_owned_partitions_and_the_generation() -> None:
    owned = OwnedPartitions([Gentle()], rack="r1")
    owned.topics = frozenset({"u", "t"})
    owned.on_assignment("gentle", 7, assignment(t=[1, 0]))

    ((name, metadata),) = owned.protocols()
    subscription = decode_subscription(metadata)

    assert name == "gentle"
    assert subscription.topics == ["t", "u"]
    assert subscription.owned_partitions == [TopicPartitions("t", [0, 1])]
    assert (subscription.generation_id, subscription.rack_id) == (7, "r1")


def test_protocols_are_offered_in_the_order_of_preference() -> None:
    assert [name for name, _ in owned_by(Gentle(), Nobody()).protocols()] == ["gentle", "nobody"]


def test_a_cooperative_member_that_must_let_go_joins_once_more() -> None:
    owned = owned_by(Gentle())
    owned.on_assignment("gentle", 1, assignment(t=[0, 1]))

    change = owned.on_assignment("gentle", 2, assignment(t=[1, 2]))

    assert change == AssignmentChange([("t", 0)], [("t", 2)], "need to revoke partitions and re-join")


def test_one_that_only_gains_does_not() -> None:
    owned = owned_by(Gentle())
    owned.on_assignment("gentle", 1, assignment(t=[0]))

    assert owned.on_assignment("gentle", 2, assignment(t=[0, 1])) == AssignmentChange([], [("t", 1)], None)


def test_an_assignment_of_topics_that_are_not_subscribed_any_more_is_not_adopted() -> None:
    owned = owned_by(Nobody(), topics=("t",))

    change = owned.on_assignment("nobody", 3, assignment(gone=[0], t=[1]))

    assert change.added == []
    assert "gone" in (change.rejoin or "")
    assert not owned.partitions


def test_the_empty_assignment_is_an_assignment() -> None:
    assert owned_by().on_assignment("nobody", 1, EMPTY_ASSIGNMENT) == AssignmentChange([], [], None)


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\x00\x01\x00\x00\x00\x07"])
def test_an_assignment_that_cannot_be_read_says_so(garbage: bytes) -> None:
    with pytest.raises(WireError):
        owned_by().on_assignment("nobody", 1, garbage)


def test_on_assignment_gets_the_assignment_and_if_it_takes_it_the_generation() -> None:
    notified: list[object] = []

    class One(Nobody):
        def on_assignment(self, assignment: MemberAssignment) -> None:
            notified.append(assignment)

    class Two(Nobody):
        def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
            notified.append((assignment, generation))

    given = MemberAssignment({"t": [0]}, b"extra")
    owned_by(One()).on_assignment("nobody", 5, assignment(t=[0]))
    owned_by(Two()).on_assignment("nobody", 5, assignment(t=[0]))

    assert notified == [given, (given, 5)]


def test_owned_partitions_need_a_strategy() -> None:
    with pytest.raises(ValueError, match="strategy"):
        OwnedPartitions([])
