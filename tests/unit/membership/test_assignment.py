"""The leader's work: the members' words are read, the assignor decides, and its decision is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from holdfast.assignors.interface import (
    Assignor,
    Cluster,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
)
from holdfast.membership.assignment import InvalidAssignment, perform_assignment, read_subscriptions, subscribed_topics
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.consumer_protocol import (
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_subscription,
)

CLUSTER = Cluster({"t": 2, "u": 1})
BOTH = {
    "a": MemberSubscription(("t",)),
    "b": MemberSubscription(("t", "u")),
}
Assignments = Mapping[str, MemberAssignment]
NOTHING: dict[str, Assignments] = {}


class Scripted(Assignor):
    name = "scripted"

    def __init__(self, decision: Callable[[], Assignments]) -> None:
        self._decision = decision

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> Assignments:
        return self._decision()


def giving(**assignments: dict[str, list[int]]) -> Scripted:
    return Scripted(lambda: {member: MemberAssignment(given) for member, given in assignments.items()})


def test_what_the_members_said_is_read_with_their_instance_ids() -> None:
    metadata = encode_subscription(
        Subscription(["t"], b"mine", [TopicPartitions("t", [1])], generation_id=4, rack_id="r")
    )

    read = read_subscriptions([JoinGroupResponseMember("m", "i", metadata)])

    assert read == {"m": MemberSubscription(["t"], b"mine", {"t": [1]}, 4, "r", "i")}


def test_a_member_with_an_unreadable_subscription_does_not_stop_the_others() -> None:
    good = encode_subscription(Subscription(["t"]))

    read = read_subscriptions(
        [JoinGroupResponseMember("bad", None, b"\xff\xff\xff"), JoinGroupResponseMember("good", None, good)]
    )

    assert read["bad"].topics == ()
    assert subscribed_topics(read) == {"t"}


def test_a_good_decision_is_written_for_every_member() -> None:
    written = perform_assignment(giving(a={"t": [0]}, b={"t": [1], "u": [0]}), CLUSTER, BOTH)

    assert decode_assignment(written["a"]).assigned_partitions == [TopicPartitions("t", [0])]
    assert decode_assignment(written["b"]).assigned_partitions == [
        TopicPartitions("t", [1]),
        TopicPartitions("u", [0]),
    ]


def test_a_member_that_gets_nothing_gets_an_empty_assignment() -> None:
    written = perform_assignment(giving(b={"t": [0, 1], "u": [0]}), CLUSTER, BOTH)

    assert decode_assignment(written["a"]).assigned_partitions == []


def test_user_data_is_in_the_assignment() -> None:
    assignments = {"a": MemberAssignment({"t": [0, 1]}, b"note"), "b": MemberAssignment({"u": [0]})}

    written = perform_assignment(Scripted(lambda: assignments), CLUSTER, BOTH)

    assert decode_assignment(written["a"]).user_data == b"note"


@pytest.mark.parametrize(
    ("assignor", "complaint"),
    [
        (giving(a={"t": [0]}, b={"t": [0, 1], "u": [0]}), "gave t-0 to several members"),
        (giving(a={"t": [0]}, b={"u": [0]}), "forgot t-1"),
        (giving(a={"t": [0, 1]}, b={}), "forgot u-0"),
        (giving(a={"t": [0, 2]}, b={"t": [1], "u": [0]}), "assigned t-2, but the topic has 2 partitions"),
        (giving(a={"t": [0, -1]}, b={"t": [1], "u": [0]}), "assigned t--1"),
        (giving(a={"t": [0, 1], "v": [0]}, b={"u": [0]}), "'v', which does not exist"),
        (giving(a={"t": [0, 1], "u": [0]}), "gave 'u' to member 'a', who does not subscribe"),
        (giving(a={"t": [0, 1]}, b={"u": [0]}, c={}), "assigned to 'c', who is not in the group"),
        (Scripted(lambda: NOTHING["nothing"]), "raised KeyError: 'nothing'"),
    ],
)
def test_a_mistake_is_named(assignor: Assignor, complaint: str) -> None:
    with pytest.raises(InvalidAssignment, match="'scripted'") as raised:
        perform_assignment(assignor, CLUSTER, BOTH)
    assert complaint in str(raised.value)


def test_what_cannot_be_looked_at_is_the_assignors_mistake_too() -> None:
    with pytest.raises(InvalidAssignment, match="raised"):
        perform_assignment(Scripted(lambda: {"a": MemberAssignment({"t": ["zero"]})}), CLUSTER, BOTH)  # type: ignore[list-item]


def test_assignors_that_declare_it_may_assign_several_owners_or_none() -> None:
    twice = giving(a={"t": [0, 1]}, b={"t": [0, 1], "u": [0]})
    twice.allows_multiple_owners = True
    few = giving(a={"t": [0]}, b={})
    few.allows_unassigned = True

    perform_assignment(twice, CLUSTER, BOTH)
    perform_assignment(few, CLUSTER, BOTH)


def test_a_cooperative_assignor_may_hold_back_only_owned_partitions() -> None:
    still_owned = {"a": MemberSubscription(("t",), owned={"t": [0]}), "b": MemberSubscription(("t", "u"))}
    holding_back = giving(a={"t": []}, b={"t": [1], "u": [0]})
    with pytest.raises(InvalidAssignment, match="forgot t-0"):
        perform_assignment(holding_back, CLUSTER, still_owned)

    holding_back.protocol = RebalanceProtocol.COOPERATIVE
    perform_assignment(holding_back, CLUSTER, still_owned)

    with pytest.raises(InvalidAssignment, match="forgot t-0"):
        perform_assignment(holding_back, CLUSTER, BOTH)


def test_a_cooperative_assignor_may_not_move_a_partition_that_is_still_owned() -> None:
    def claims(generation: int) -> dict[str, MemberSubscription]:
        return {
            "a": MemberSubscription(("t",), owned={"t": [0]}, generation=generation),
            "b": MemberSubscription(("t", "u"), owned={"t": [1]}, generation=5),
        }

    taking = giving(a={}, b={"t": [0, 1], "u": [0]})
    taking.protocol = RebalanceProtocol.COOPERATIVE
    with pytest.raises(InvalidAssignment, match="gave t-0 to 'b' while 'a' still has it"):
        perform_assignment(taking, CLUSTER, claims(generation=5))

    perform_assignment(taking, CLUSTER, claims(generation=4))  # a claim from before the last generation is no claim


def test_a_topic_that_does_not_exist_is_no_assignor_fault() -> None:
    subscriptions = {"a": MemberSubscription(("t", "missing"))}

    perform_assignment(giving(a={"t": [0, 1]}), Cluster({"t": 2}), subscriptions)
