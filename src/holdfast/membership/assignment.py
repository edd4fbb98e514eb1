"""The leader's work: read the members' subscriptions, run the assignor, check its result and encode it.

The result is checked because a mistake harms the whole group: a partition with two owners is processed twice, one
without an owner is not processed at all, and no member would notice. The error names the assignor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription, RebalanceProtocol
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.consumer_protocol import NO_GENERATION, AssignmentWriter, decode_subscription
from holdfast.wire.errors import WireError


class AssignorFault(IntEnum):
    """The code of the error in the report to a coordinator with Holdfast's extensions."""

    RAISED = 1
    """The assignor raised an exception."""
    INVALID = 2
    """Its result is not a valid assignment."""


class InvalidAssignment(Exception):
    """The assignor raised an exception, or its result is not a valid assignment."""

    def __init__(self, message: str, fault: AssignorFault = AssignorFault.INVALID) -> None:
        super().__init__(message)
        self.fault = fault


def read_subscriptions(members: Sequence[JoinGroupResponseMember]) -> dict[str, MemberSubscription]:
    """A member with unreadable metadata subscribes to nothing; the others are not affected."""
    return {member.member_id: _read_subscription(member) for member in members}


def subscribed_topics(subscriptions: Mapping[str, MemberSubscription]) -> set[str]:
    """The topics of all members. The leader monitors all of them, including those that it does not read itself."""
    return {topic for subscription in subscriptions.values() for topic in subscription.topics}


def perform_assignment(
    assignor: Assignor, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]
) -> dict[str, bytes]:
    """The encoded assignment of each member. InvalidAssignment names the assignor and its mistake."""
    try:
        assigned = assignor.assign(cluster, subscriptions)
        _check(assignor, cluster, subscriptions, assigned)
        writer = AssignmentWriter()
        nothing = MemberAssignment({})
        complete = {member: assigned.get(member, nothing) for member in subscriptions}
        return {member: writer.write(one.partitions, one.user_data) for member, one in complete.items()}
    except InvalidAssignment:
        raise
    except Exception as error:  # any exception of a user's assignor or of its result
        message = f"the assignor {assignor.name!r} raised {type(error).__name__}: {error}"
        raise InvalidAssignment(message, AssignorFault.RAISED) from error


def _read_subscription(member: JoinGroupResponseMember) -> MemberSubscription:
    try:
        subscription = decode_subscription(member.metadata)
    except WireError:
        return MemberSubscription(topics=(), group_instance_id=member.group_instance_id)
    return MemberSubscription(
        topics=subscription.topics,
        user_data=subscription.user_data,
        owned={entry.topic: entry.partitions for entry in subscription.owned_partitions},
        generation=subscription.generation_id,
        rack=subscription.rack_id,
        group_instance_id=member.group_instance_id,
    )


def _check(
    assignor: Assignor,
    cluster: Cluster,
    subscriptions: Mapping[str, MemberSubscription],
    assigned: Mapping[str, MemberAssignment],
) -> None:
    owners: dict[str, list[int]] = {topic: [0] * count for topic, count in cluster.partitions.items()}
    claims = _ownership_claims(cluster, subscriptions) if assignor.protocol is RebalanceProtocol.COOPERATIVE else None
    for member, assignment in assigned.items():
        if member not in subscriptions:
            raise InvalidAssignment(f"the assignor {assignor.name!r} assigned to {member!r}, who is not in the group")
        topics = set(subscriptions[member].topics)
        for topic, numbers in assignment.partitions.items():
            if not len(numbers):
                continue
            counts = owners.get(topic)
            if counts is None:
                raise InvalidAssignment(
                    f"the assignor {assignor.name!r} assigned topic {topic!r}, which does not exist"
                )
            if topic not in topics:
                raise InvalidAssignment(
                    f"the assignor {assignor.name!r} gave {topic!r} to member {member!r}, who does not subscribe to it"
                )
            _count_owners(assignor, topic, numbers, counts)
            if claims is not None:
                _check_handover(assignor, member, topic, numbers, claims[topic])
    _check_owners(assignor, subscriptions, owners, claims)


def _count_owners(assignor: Assignor, topic: str, numbers: Sequence[int], owners: list[int]) -> None:
    for number in numbers:
        if not 0 <= number < len(owners):
            raise InvalidAssignment(
                f"the assignor {assignor.name!r} assigned {topic}-{number}, but the topic has {len(owners)} partitions"
            )
        owners[number] += 1


@dataclass(slots=True)
class _OwnershipClaims:
    """Which members claim the partitions of a topic as their own."""

    claimed: list[bool]
    newest_owner: list[str | None]
    """The member that claims it in the newest generation of all members. Older claims are void. Members whose
    subscription has no generation (before v2) do not count."""


def _ownership_claims(cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, _OwnershipClaims]:
    claims = {topic: _OwnershipClaims([False] * count, [None] * count) for topic, count in cluster.partitions.items()}
    newest = max((one.generation for one in subscriptions.values()), default=NO_GENERATION)
    for member, subscription in subscriptions.items():
        for topic, numbers in subscription.owned.items():
            claim = claims.get(topic)
            for number in numbers if claim is not None else ():
                if claim is not None and 0 <= number < len(claim.claimed):
                    claim.claimed[number] = True
                    if subscription.generation == newest != NO_GENERATION:
                        claim.newest_owner[number] = member
    return claims


def _check_handover(
    assignor: Assignor, member: str, topic: str, numbers: Sequence[int], claims: _OwnershipClaims
) -> None:
    """KIP-429: a partition that a member still owns is not assigned to another in the same rebalance."""
    for number in numbers:
        holder = claims.newest_owner[number]
        if holder is not None and holder != member:
            raise InvalidAssignment(
                f"the assignor {assignor.name!r} gave {topic}-{number} to {member!r} while {holder!r} still has it: a "
                "cooperative assignor gives it to nobody in this round, and to another in the next"
            )


def _check_owners(
    assignor: Assignor,
    subscriptions: Mapping[str, MemberSubscription],
    owners: Mapping[str, Sequence[int]],
    claims: Mapping[str, _OwnershipClaims] | None,
) -> None:
    wanted = subscribed_topics(subscriptions)
    for topic, counts in owners.items():
        if not assignor.allows_multiple_owners and max(counts, default=0) > 1:
            number = next(number for number, count in enumerate(counts) if count > 1)
            raise InvalidAssignment(f"the assignor {assignor.name!r} gave {topic}-{number} to several members")
        if topic not in wanted or assignor.allows_unassigned or min(counts, default=1) > 0:
            continue
        for number, count in enumerate(counts):
            # KIP-429: a partition that moves stays unassigned until its owner has revoked it.
            if count == 0 and not (claims is not None and claims[topic].claimed[number]):
                raise InvalidAssignment(f"the assignor {assignor.name!r} forgot {topic}-{number}: nobody would read it")
