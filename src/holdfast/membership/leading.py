"""The leader's work: read what the members said, let the assignor decide, check the decision, write it down.

The decision is checked because a mistake in it costs everybody: a partition with two owners is processed twice, one
with none is not processed at all, and nobody is told. An assignor that makes one gets an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription, RebalanceProtocol
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.consumer_protocol import (
    NO_GENERATION,
    Assignment,
    TopicPartitions,
    decode_subscription,
    encode_assignment,
)
from holdfast.wire.errors import WireError


class BadAssignment(Exception):
    """The assignor raised, or decided what cannot be."""


def read_subscriptions(members: Sequence[JoinGroupResponseMember]) -> dict[str, MemberSubscription]:
    """What each member told. One whose words cannot be read gets nothing, and stops nobody else."""
    return {member.member_id: _read(member) for member in members}


def subscribed_topics(subscriptions: Mapping[str, MemberSubscription]) -> set[str]:
    """Everybody's topics: the leader watches them all, also those that it does not read itself."""
    return {topic for subscription in subscriptions.values() for topic in subscription.topics}


def decide(assignor: Assignor, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, bytes]:
    """By member id, the assignment as it goes to the coordinator. BadAssignment says what is wrong, and with what."""
    try:
        decision = assignor.assign(cluster, subscriptions)
        _check(assignor, cluster, subscriptions, decision)
        return {member: _write(decision.get(member)) for member in subscriptions}
    except BadAssignment:
        raise
    except Exception as error:  # whatever a user's assignor, or what it returned, may raise
        raise BadAssignment(f"the assignor {assignor.name!r} raised {type(error).__name__}: {error}") from error


def _read(member: JoinGroupResponseMember) -> MemberSubscription:
    try:
        told = decode_subscription(member.metadata)
    except WireError:
        return MemberSubscription(topics=(), group_instance_id=member.group_instance_id)
    return MemberSubscription(
        topics=told.topics,
        user_data=told.user_data,
        owned={entry.topic: entry.partitions for entry in told.owned_partitions},
        generation=told.generation_id,
        rack=told.rack_id,
        group_instance_id=member.group_instance_id,
    )


def _write(share: MemberAssignment | None) -> bytes:
    if share is None:
        return encode_assignment(Assignment([]))
    partitions = [TopicPartitions(topic, list(numbers)) for topic, numbers in share.partitions.items() if len(numbers)]
    return encode_assignment(Assignment(partitions, share.user_data))


def _check(
    assignor: Assignor,
    cluster: Cluster,
    subscriptions: Mapping[str, MemberSubscription],
    decision: Mapping[str, MemberAssignment],
) -> None:
    given: dict[str, list[int]] = {topic: [0] * count for topic, count in cluster.partitions.items()}
    for member, share in decision.items():
        if member not in subscriptions:
            raise BadAssignment(f"the assignor {assignor.name!r} assigned to {member!r}, who is not in the group")
        topics = set(subscriptions[member].topics)
        for topic, numbers in share.partitions.items():
            if not len(numbers):
                continue
            owners = given.get(topic)
            if owners is None:
                raise BadAssignment(f"the assignor {assignor.name!r} assigned topic {topic!r}, which does not exist")
            if topic not in topics:
                raise BadAssignment(
                    f"the assignor {assignor.name!r} gave {topic!r} to member {member!r}, who does not subscribe to it"
                )
            _count(assignor, topic, numbers, owners)
    _check_owners(assignor, subscriptions, given)
    if assignor.protocol is RebalanceProtocol.COOPERATIVE:
        _check_hand_over(assignor, subscriptions, decision)


def _count(assignor: Assignor, topic: str, numbers: Sequence[int], owners: list[int]) -> None:
    for number in numbers:
        if not 0 <= number < len(owners):
            raise BadAssignment(
                f"the assignor {assignor.name!r} assigned {topic}-{number}, but the topic has {len(owners)} partitions"
            )
        owners[number] += 1


def _check_owners(
    assignor: Assignor,
    subscriptions: Mapping[str, MemberSubscription],
    given: Mapping[str, Sequence[int]],
) -> None:
    wanted = subscribed_topics(subscriptions)
    still_owned: set[tuple[str, int]] | None = None
    for topic, owners in given.items():
        if not assignor.several_owners and max(owners, default=0) > 1:
            number = next(number for number, count in enumerate(owners) if count > 1)
            raise BadAssignment(f"the assignor {assignor.name!r} gave {topic}-{number} to several members")
        if topic not in wanted or assignor.may_leave_out or min(owners, default=1) > 0:
            continue
        # KIP-429: a partition that changes hands is given to nobody until its owner has let go of it.
        if still_owned is None:
            still_owned = _owned(assignor, subscriptions)
        for number, count in enumerate(owners):
            if count == 0 and (topic, number) not in still_owned:
                raise BadAssignment(f"the assignor {assignor.name!r} forgot {topic}-{number}: nobody would read it")


def _check_hand_over(
    assignor: Assignor,
    subscriptions: Mapping[str, MemberSubscription],
    decision: Mapping[str, MemberAssignment],
) -> None:
    """KIP-429: what somebody still works on is not given to another in the same round. Claims from an older generation
    than the newest are nobody's any more."""
    newest = max((one.generation for one in subscriptions.values()), default=NO_GENERATION)
    holder = {
        (topic, number): member
        for member, subscription in subscriptions.items()
        if subscription.generation == newest
        for topic, numbers in subscription.owned.items()
        for number in numbers
    }
    for member, share in decision.items():
        for topic, numbers in share.partitions.items():
            for number in numbers:
                held_by = holder.get((topic, number), member)
                if held_by != member:
                    raise BadAssignment(
                        f"the assignor {assignor.name!r} gave {topic}-{number} to {member!r} while {held_by!r} still "
                        "has it: a cooperative assignor gives it to nobody in this round, and to another in the next"
                    )


def _owned(assignor: Assignor, subscriptions: Mapping[str, MemberSubscription]) -> set[tuple[str, int]]:
    if assignor.protocol is RebalanceProtocol.EAGER:
        return set()
    return {
        (topic, number)
        for subscription in subscriptions.values()
        for topic, numbers in subscription.owned.items()
        for number in numbers
    }
