"""A resync: the leader assigns new partitions without a rebalance, if the topics of its group have only grown.

The coordinator describes the assignments of all members, and the assignor runs as if all of them rejoined with these.
If it takes no partition from any member, the new partitions can be assigned without a rebalance: the coordinator stores
the assignments and asks the members that got more to rejoin. Otherwise (range moves partitions from one member to the
next), or if the group is not as the leader knows it, the group rebalances as it would in Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from holdfast.assignors import sticky_user_data
from holdfast.assignors.interface import Assignor, Cluster, MemberSubscription
from holdfast.assignors.sticky import StickyAssignor
from holdfast.membership.assignment import InvalidAssignment, perform_assignment, read_subscriptions, subscribed_topics
from holdfast.types import TopicPartition
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.consumer_protocol import PROTOCOL_TYPE, Assignment, decode_assignment
from holdfast.wire.errors import WireError

STABLE: Final = "Stable"


@dataclass(frozen=True, slots=True)
class Growth:
    """The content of a resync: the epoch on which it is based, and the new assignment of each member that gets more."""

    epoch: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader's own state."""

    member_id: str
    generation: int
    assignors: Mapping[str, Assignor]


def plan_growth(leader: Leader, cluster: Cluster, topics: Collection[str], group: DescribedGroup) -> Growth | None:
    """The extended assignments; None if a rebalance is necessary."""
    extensions = group.extensions
    assignor = leader.assignors.get(group.protocol_data)
    if extensions is None or assignor is None or group.protocol_type != PROTOCOL_TYPE:
        return None
    is_current = (extensions.leader, extensions.generation_id) == (leader.member_id, leader.generation)
    if group.group_state != STABLE or not extensions.settled or not is_current:
        return None
    standbys = set(extensions.standbys)
    active = [member for member in group.members if member.member_id not in standbys]
    try:
        have = {member.member_id: decode_assignment(member.member_assignment) for member in active}
    except WireError:
        return None
    subscriptions = _current_subscriptions(assignor, leader.generation, active, have)
    if leader.member_id not in have or subscribed_topics(subscriptions) != set(topics):
        return None
    try:
        assignments = perform_assignment(assignor, cluster, subscriptions)
    except InvalidAssignment:
        return None  # the rebalance will report it
    grown = _grown_assignments(have, assignments)
    return Growth(extensions.assignment_epoch, grown) if grown else None


def _current_subscriptions(
    assignor: Assignor, generation: int, members: list[DescribedGroupMember], have: Mapping[str, Assignment]
) -> dict[str, MemberSubscription]:
    """The subscription with which each member would join now: the one of its last join, with its current partitions."""
    last = read_subscriptions(
        [JoinGroupResponseMember(one.member_id, one.group_instance_id, one.member_metadata) for one in members]
    )
    subscriptions = {}
    for member, subscription in last.items():
        owned = {entry.topic: entry.partitions for entry in have[member].assigned_partitions}
        joining = replace(subscription, owned=owned, generation=generation)
        if isinstance(assignor, StickyAssignor):  # it reads the owned partitions from the user data only
            joining = replace(joining, user_data=sticky_user_data.encode(owned, generation))
        subscriptions[member] = joining
    return subscriptions


def _grown_assignments(have: Mapping[str, Assignment], assignments: Mapping[str, bytes]) -> dict[str, bytes]:
    """The assignments that have grown; empty if any member would lose a partition."""
    grown = {}
    for member, before in have.items():
        after = decode_assignment(assignments[member])
        had, has = _partitions(before), _partitions(after)
        if not had <= has or (had == has and before.user_data != after.user_data):
            return {}
        if had != has:
            grown[member] = assignments[member]
    return grown


def _partitions(assignment: Assignment) -> set[TopicPartition]:
    return {(entry.topic, number) for entry in assignment.assigned_partitions for number in entry.partitions}
