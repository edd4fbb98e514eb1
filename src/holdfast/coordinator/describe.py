"""DescribeGroups and ListGroups: a group as others may see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.member import Member, Role
from holdfast.coordinator.classic.state_machine import STABLE, GroupState
from holdfast.coordinator.extensions import standby_members, targeted_rejoin
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember, ExpectedMember, GroupExtensions
from holdfast.wire.apis.list_groups import ListedGroup
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT
from holdfast.wire.error_codes import ErrorCode

GROUP_TYPE: Final = "classic"
FIRST_WITH_NOT_FOUND: Final = 6


def describe(group: Group | None, group_id: str, api_version: int) -> DescribedGroup:
    """Protocol and metadata are shown only in a stable group; an assignment also while the next one is made."""
    if group is None:
        missing = api_version >= FIRST_WITH_NOT_FOUND
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE,
            error_message=f"Group {group_id} not found." if missing else None,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
        )
    stable = group.state is STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.stored.protocol_name or "") if stable else "",
        members=[_describe_member(group, member, stable) for member in group.members.all_members],
    )


def describe_extensions(group: Group) -> GroupExtensions:
    """What a client may ask for beyond Kafka."""
    missing = set(standby_members.missing_registered(group))
    facts = group.extensions
    return GroupExtensions(
        generation_id=group.generation,
        assignment_epoch=group.epoch,
        leader=group.leader_id or "",
        settled=not group.ext.vacancies and targeted_rejoin.is_settled(group),
        target_size=facts.target_size,
        standby_takeover_ms=facts.standby_takeover_ms,
        standbys=list(group.members.standbys),
        expected=[ExpectedMember(name, at_ms, name not in missing) for name, at_ms in facts.registered.items()],
        vacancies=len(group.ext.vacancies),
    )


def _describe_member(group: Group, member: Member, stable: bool) -> DescribedGroupMember:
    assignment = EMPTY_ASSIGNMENT if member.role is Role.STANDBY else member.assignment
    return DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client.client_id,
        client_host=member.client.host,
        member_metadata=member.metadata_for(group.stored.protocol_name) if stable else b"",
        member_assignment=b"" if group.assignments_cleared else assignment,
    )


def list_groups(groups: Iterable[Group], states: Sequence[str], types: Sequence[str]) -> list[ListedGroup]:
    """Filters are compared without regard to case; an empty one lets everything through."""
    wanted_states = {state.lower() for state in states}
    if types and GROUP_TYPE not in {kind.lower() for kind in types}:
        return []
    return [
        ListedGroup(group.id, group.protocol_type or "", group.state.value, GROUP_TYPE)
        for group in groups
        if not wanted_states or group.state.value.lower() in wanted_states
    ]
