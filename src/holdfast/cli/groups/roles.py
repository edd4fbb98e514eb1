"""The roles of members in their group. Only Holdfast reports them; on Apache Kafka no member has one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.client.descriptions import ExpectedMember, GroupDescription


class Role(StrEnum):
    LEADER = "leader"
    ACTIVE = "active"
    STANDBY = "standby"
    """In the group without an assignment, until there is a vacancy."""
    ARRIVED = "arrived"
    """Registered, has joined, and waits for the other registered members without an assignment."""
    EXPECTED = "expected"
    """Registered, and has not joined."""


def roles(group: GroupDescription) -> dict[str, Role]:
    """By member id."""
    if group.extensions is None:
        return {}
    registered = {one.instance_id: _role(one) for one in group.extensions.expected}
    found: dict[str, Role] = {}
    for member in group.members:
        if member.group_instance_id in registered:
            # A member that joined and disconnected is expected again, although it is still a member.
            found[member.member_id] = registered[member.group_instance_id]
        elif member.is_standby:
            found[member.member_id] = Role.STANDBY
        else:
            leads = member.member_id == group.extensions.leader
            found[member.member_id] = Role.LEADER if leads else Role.ACTIVE
    return found


def _role(registered: ExpectedMember) -> Role:
    return Role.ARRIVED if registered.arrived else Role.EXPECTED


def expected(group: GroupDescription) -> Sequence[ExpectedMember]:
    """The registered members, arrived or not."""
    return () if group.extensions is None else group.extensions.expected


def not_yet_members(group: GroupDescription) -> dict[str, Role]:
    """By instance id, the registered members that have not joined yet."""
    members = {member.group_instance_id for member in group.members}
    return {one.instance_id: _role(one) for one in expected(group) if one.instance_id not in members}


def arrived_count(group: GroupDescription) -> int:
    return sum(one.arrived for one in expected(group))


def standby_count(group: GroupDescription) -> int:
    return sum(role is Role.STANDBY for role in roles(group).values())
