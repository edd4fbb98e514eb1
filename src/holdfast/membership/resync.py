"""How a leader adds to the shares of a group that stays as it is, when its topics have only gained partitions.

The coordinator says what everybody has; the assignor is asked as if all of them joined again with that. If it takes
nothing from anybody, the growth can be handed out without a rebalance: the coordinator stores it and calls the members
whose share grows. If not (range moves partitions from one member to the next), or if anything about the group is not as
the leader remembers it, there is no growth, and the group rebalances as Kafka's would.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from holdfast.assignors import sticky_user_data
from holdfast.assignors.interface import Assignor, Cluster, MemberSubscription
from holdfast.assignors.sticky import StickyAssignor
from holdfast.membership.leading import BadAssignment, decide, read_subscriptions, subscribed_topics
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.consumer_protocol import PROTOCOL_TYPE, Assignment, decode_assignment
from holdfast.wire.errors import WireError

STABLE: Final = "Stable"


@dataclass(frozen=True, slots=True)
class Growth:
    """What a resync says: from which epoch it was worked out, and all that each member has whose share grows."""

    epoch: int
    shares: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Leader:
    """The one that asks, as it knows itself."""

    member_id: str
    generation: int
    assignors: Mapping[str, Assignor]


def growth(leader: Leader, cluster: Cluster, topics: Collection[str], group: DescribedGroup) -> Growth | None:
    """How the shares grow now that the topics look like this; None if that takes a rebalance."""
    told = group.extensions
    assignor = leader.assignors.get(group.protocol_data)
    if told is None or assignor is None or group.protocol_type != PROTOCOL_TYPE:
        return None
    as_remembered = (told.leader, told.generation_id) == (leader.member_id, leader.generation)
    if group.group_state != STABLE or not told.settled or not as_remembered:
        return None
    waiting = set(told.waiting)
    active = [member for member in group.members if member.member_id not in waiting]
    try:
        have = {member.member_id: decode_assignment(member.member_assignment) for member in active}
    except WireError:
        return None
    subscriptions = _as_if_they_joined(assignor, leader.generation, active, have)
    if leader.member_id not in have or subscribed_topics(subscriptions) != set(topics):
        return None
    try:
        decision = decide(assignor, cluster, subscriptions)
    except BadAssignment:
        return None  # the rebalance shows what is wrong with it
    grown = _grown(have, decision)
    return Growth(told.assignment_epoch, grown) if grown else None


def _as_if_they_joined(
    assignor: Assignor, generation: int, members: list[DescribedGroupMember], have: Mapping[str, Assignment]
) -> dict[str, MemberSubscription]:
    """What each would say: what it said of itself when it joined last, and that it has what it has now."""
    said = read_subscriptions(
        [JoinGroupResponseMember(one.member_id, one.group_instance_id, one.member_metadata) for one in members]
    )
    subscriptions = {}
    for member, subscription in said.items():
        owned = {entry.topic: entry.partitions for entry in have[member].assigned_partitions}
        joining = replace(subscription, owned=owned, generation=generation)
        if isinstance(assignor, StickyAssignor):  # it reads what its members had in their user data alone
            joining = replace(joining, user_data=sticky_user_data.encode(owned, generation))
        subscriptions[member] = joining
    return subscriptions


def _grown(have: Mapping[str, Assignment], decision: Mapping[str, bytes]) -> dict[str, bytes]:
    """The shares that are larger than before; empty if any of them lacks something that it had."""
    grown = {}
    for member, before in have.items():
        after = decode_assignment(decision[member])
        had, has = _partitions(before), _partitions(after)
        if not had <= has or (had == has and before.user_data != after.user_data):
            return {}
        if had != has:
            grown[member] = decision[member]
    return grown


def _partitions(assignment: Assignment) -> set[tuple[str, int]]:
    return {(entry.topic, number) for entry in assignment.assigned_partitions for number in entry.partitions}
