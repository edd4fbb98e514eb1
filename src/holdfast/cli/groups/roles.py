"""What each member is to its group. Only Holdfast tells; of a group on Apache Kafka nobody has a role."""

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
    """It is in the group without a share, until a place is free."""
    ARRIVED = "arrived"
    """It was announced, has come, and waits for the others without a share."""
    EXPECTED = "expected"
    """It was announced and is not there."""


def roles(group: GroupDescription) -> dict[str, Role]:
    """By member id."""
    if group.extensions is None:
        return {}
    announced = {one.instance_id: _role(one) for one in group.extensions.expected}
    found: dict[str, Role] = {}
    for member in group.members:
        if member.group_instance_id in announced:
            # One that came and hung up is expected again, though its seat is still there.
            found[member.member_id] = announced[member.group_instance_id]
        elif member.is_waiting:
            found[member.member_id] = Role.STANDBY
        else:
            leads = member.member_id == group.extensions.leader
            found[member.member_id] = Role.LEADER if leads else Role.ACTIVE
    return found


def _role(announced: ExpectedMember) -> Role:
    return Role.ARRIVED if announced.arrived else Role.EXPECTED


def expected(group: GroupDescription) -> Sequence[ExpectedMember]:
    """Those who were announced, arrived or not."""
    return () if group.extensions is None else group.extensions.expected


def to_come(group: GroupDescription) -> dict[str, Role]:
    """By instance id, those who were announced and are no members yet."""
    members = {member.group_instance_id for member in group.members}
    return {one.instance_id: _role(one) for one in expected(group) if one.instance_id not in members}


def arrived_count(group: GroupDescription) -> int:
    return sum(one.arrived for one in expected(group))


def standby_count(group: GroupDescription) -> int:
    return sum(role is Role.STANDBY for role in roles(group).values())
