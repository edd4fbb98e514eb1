"""The leader's work: read what the members said, let the assignor decide, check the decision, write it down.

The decision is checked because a mistake in it costs everybody: a partition with two owners is processed twice, one
with none is not processed at all, and nobody is told. An assignor that makes one gets an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription, RebalanceProtocol
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.consumer_protocol import NO_GENERATION, AssignmentWriter, decode_subscription
from holdfast.wire.errors import WireError


class Fault(IntEnum):
    """What was wrong, as a number: it is told to the coordinator, where that understands it."""

    RAISED = 1
    """The assignor raised."""
    REFUSED = 2
    """It decided what cannot be."""


class BadAssignment(Exception):
    """The assignor raised, or decided what cannot be."""

    def __init__(self, message: str, fault: Fault = Fault.REFUSED) -> None:
        super().__init__(message)
        self.fault = fault


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
        writer = AssignmentWriter()
        nothing = MemberAssignment({})
        shares = {member: decision.get(member, nothing) for member in subscriptions}
        return {member: writer.write(share.partitions, share.user_data) for member, share in shares.items()}
    except BadAssignment:
        raise
    except Exception as error:  # whatever a user's assignor, or what it returned, may raise
        message = f"the assignor {assignor.name!r} raised {type(error).__name__}: {error}"
        raise BadAssignment(message, Fault.RAISED) from error


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


def _check(
    assignor: Assignor,
    cluster: Cluster,
    subscriptions: Mapping[str, MemberSubscription],
    decision: Mapping[str, MemberAssignment],
) -> None:
    owners: dict[str, list[int]] = {topic: [0] * count for topic, count in cluster.partitions.items()}
    claims = _claims(cluster, subscriptions) if assignor.protocol is RebalanceProtocol.COOPERATIVE else None
    for member, share in decision.items():
        if member not in subscriptions:
            raise BadAssignment(f"the assignor {assignor.name!r} assigned to {member!r}, who is not in the group")
        topics = set(subscriptions[member].topics)
        for topic, numbers in share.partitions.items():
            if not len(numbers):
                continue
            counts = owners.get(topic)
            if counts is None:
                raise BadAssignment(f"the assignor {assignor.name!r} assigned topic {topic!r}, which does not exist")
            if topic not in topics:
                raise BadAssignment(
                    f"the assignor {assignor.name!r} gave {topic!r} to member {member!r}, who does not subscribe to it"
                )
            _count(assignor, topic, numbers, counts)
            if claims is not None:
                _check_hand_over(assignor, member, topic, numbers, claims[topic])
    _check_owners(assignor, subscriptions, owners, claims)


def _count(assignor: Assignor, topic: str, numbers: Sequence[int], owners: list[int]) -> None:
    for number in numbers:
        if not 0 <= number < len(owners):
            raise BadAssignment(
                f"the assignor {assignor.name!r} assigned {topic}-{number}, but the topic has {len(owners)} partitions"
            )
        owners[number] += 1


@dataclass(slots=True)
class _Claims:
    """Of each partition of a topic, who says that he has it."""

    anybody: list[bool]
    newest: list[str | None]
    """Who says so of the newest generation that anybody knows; claims from before are nobody's any more. Of members
    that are too old to tell a generation (before Subscription v2), nothing is known."""


def _claims(cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, _Claims]:
    claims = {topic: _Claims([False] * count, [None] * count) for topic, count in cluster.partitions.items()}
    newest = max((one.generation for one in subscriptions.values()), default=NO_GENERATION)
    for member, subscription in subscriptions.items():
        for topic, numbers in subscription.owned.items():
            claim = claims.get(topic)
            for number in numbers if claim is not None else ():
                if claim is not None and 0 <= number < len(claim.anybody):
                    claim.anybody[number] = True
                    if subscription.generation == newest != NO_GENERATION:
                        claim.newest[number] = member
    return claims


def _check_hand_over(assignor: Assignor, member: str, topic: str, numbers: Sequence[int], claims: _Claims) -> None:
    """KIP-429: what somebody still works on is not given to another in the same round."""
    for number in numbers:
        holder = claims.newest[number]
        if holder is not None and holder != member:
            raise BadAssignment(
                f"the assignor {assignor.name!r} gave {topic}-{number} to {member!r} while {holder!r} still has it: a "
                "cooperative assignor gives it to nobody in this round, and to another in the next"
            )


def _check_owners(
    assignor: Assignor,
    subscriptions: Mapping[str, MemberSubscription],
    owners: Mapping[str, Sequence[int]],
    claims: Mapping[str, _Claims] | None,
) -> None:
    wanted = subscribed_topics(subscriptions)
    for topic, counts in owners.items():
        if not assignor.several_owners and max(counts, default=0) > 1:
            number = next(number for number, count in enumerate(counts) if count > 1)
            raise BadAssignment(f"the assignor {assignor.name!r} gave {topic}-{number} to several members")
        if topic not in wanted or assignor.may_leave_out or min(counts, default=1) > 0:
            continue
        for number, count in enumerate(counts):
            # KIP-429: a partition that changes hands is given to nobody until its owner has let go of it.
            if count == 0 and not (claims is not None and claims[topic].anybody[number]):
                raise BadAssignment(f"the assignor {assignor.name!r} forgot {topic}-{number}: nobody would read it")
