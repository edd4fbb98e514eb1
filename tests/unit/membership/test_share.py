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
from holdfast.membership.share import Change, GivenUp, Share
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


def share_of(*assignors: Assignor, topics: tuple[str, ...] = ("t", "u")) -> Share:
    share = Share(assignors or (Nobody(),))
    share.topics = frozenset(topics)
    return share


def test_an_eager_member_gives_up_everything_before_it_joins() -> None:
    share = share_of(Nobody())
    share.adopt("nobody", 1, assignment(t=[0, 1]))

    assert share.give_up(lost=False) == GivenUp(revoked=[("t", 0), ("t", 1)])
    assert not share.owned


def test_a_cooperative_one_gives_up_only_what_it_no_longer_subscribes_to() -> None:
    share = share_of(Gentle())
    share.adopt("gentle", 1, assignment(t=[0, 1], u=[2]))
    share.topics = frozenset({"t"})

    assert share.give_up(lost=False) == GivenUp(revoked=[("u", 2)])
    assert share.owned == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("assignor", [Nobody(), Gentle()])
def test_a_lost_seat_loses_everything(assignor: Assignor) -> None:
    share = share_of(assignor)
    share.adopt(assignor.name, 1, assignment(t=[0], u=[0]))

    assert share.give_up(lost=True) == GivenUp(lost=[("t", 0), ("u", 0)])
    assert decode_subscription(share.protocols()[0][1]).generation_id == -1


def test_with_an_eager_strategy_among_them_all_are_eager() -> None:
    assert share_of(Gentle(), Nobody()).protocol is RebalanceProtocol.EAGER
    assert share_of(Gentle()).protocol is RebalanceProtocol.COOPERATIVE


def following() -> Share:
    share = Share([Gentle(), Nobody()], follows_the_group=True)
    share.topics = frozenset({"t"})
    return share


def test_one_that_follows_the_group_keeps_its_partitions_while_the_group_is_cooperative() -> None:
    share = following()
    share.adopt("gentle", 1, assignment(t=[0, 1]))

    assert share.give_up(lost=False) == GivenUp()
    assert share.owned == {("t", 0), ("t", 1)}


def test_when_the_group_falls_back_to_an_eager_strategy_it_has_lost_what_went_and_is_eager_from_then_on() -> None:
    share = following()
    share.adopt("gentle", 1, assignment(t=[0, 1]))

    assert share.adopt("nobody", 2, assignment(t=[1, 2])) == Change([], [("t", 2)], lost=[("t", 0)])
    assert share.give_up(lost=False) == GivenUp(revoked=[("t", 1), ("t", 2)])


def test_a_member_tells_its_topics_and_what_it_owns_and_since_when() -> None:
    share = Share([Gentle()], rack="r1")
    share.topics = frozenset({"u", "t"})
    share.adopt("gentle", 7, assignment(t=[1, 0]))

    ((name, metadata),) = share.protocols()
    told = decode_subscription(metadata)

    assert name == "gentle"
    assert told.topics == ["t", "u"]
    assert told.owned_partitions == [TopicPartitions("t", [0, 1])]
    assert (told.generation_id, told.rack_id) == (7, "r1")


def test_protocols_are_offered_in_the_order_of_preference() -> None:
    assert [name for name, _ in share_of(Gentle(), Nobody()).protocols()] == ["gentle", "nobody"]


def test_a_cooperative_member_that_must_let_go_joins_once_more() -> None:
    share = share_of(Gentle())
    share.adopt("gentle", 1, assignment(t=[0, 1]))

    change = share.adopt("gentle", 2, assignment(t=[1, 2]))

    assert change == Change([("t", 0)], [("t", 2)], "need to revoke partitions and re-join")


def test_one_that_only_gains_does_not() -> None:
    share = share_of(Gentle())
    share.adopt("gentle", 1, assignment(t=[0]))

    assert share.adopt("gentle", 2, assignment(t=[0, 1])) == Change([], [("t", 1)], None)


def test_286_an_assignment_of_topics_that_are_not_subscribed_any_more_is_not_adopted() -> None:
    share = share_of(Nobody(), topics=("t",))

    change = share.adopt("nobody", 3, assignment(gone=[0], t=[1]))

    assert change.added == []
    assert "gone" in (change.rejoin or "")
    assert not share.owned


def test_the_empty_assignment_is_an_assignment() -> None:
    assert share_of().adopt("nobody", 1, EMPTY_ASSIGNMENT) == Change([], [], None)


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\x00\x01\x00\x00\x00\x07"])
def test_an_assignment_that_cannot_be_read_says_so(garbage: bytes) -> None:
    with pytest.raises(WireError):
        share_of().adopt("nobody", 1, garbage)


def test_on_assignment_gets_the_assignment_and_if_it_takes_it_the_generation() -> None:
    heard: list[object] = []

    class One(Nobody):
        def on_assignment(self, assignment: MemberAssignment) -> None:
            heard.append(assignment)

    class Two(Nobody):
        def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
            heard.append((assignment, generation))

    given = MemberAssignment({"t": [0]}, b"extra")
    share_of(One()).adopt("nobody", 5, assignment(t=[0]))
    share_of(Two()).adopt("nobody", 5, assignment(t=[0]))

    assert heard == [given, (given, 5)]


def test_a_share_needs_a_strategy() -> None:
    with pytest.raises(ValueError, match="strategy"):
        Share([])
