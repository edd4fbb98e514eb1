"""Requests to Kafka's own group coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.state.codes import error_name, known_code
from holdfast.gateway.upstream import Upstream
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from holdfast.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from holdfast.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api

PATIENCE_S: Final = 30.0
"""How long a request is repeated while the coordinator moves to another broker, or loads its groups."""
MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)

_GROUP_KEY: Final = 0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_MOST_SHOWN: Final = 5
_GONE: Final = frozenset({"Empty", "Dead"})
"""The states of a group without members."""
_NOT_THERE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


class KafkaGroups:
    def __init__(self, cluster: Upstream) -> None:
        self._cluster = cluster

    async def coordinator_of(self, group_id: str, *, refresh: bool = False) -> int:
        return await self._cluster.coordinator_of(group_id, _GROUP_KEY, refresh=refresh)

    async def ask(
        self,
        group_id: str,
        request: Any,
        code_of: Callable[[Any], int],
        *,
        limit: tuple[Api, int] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Any:
        """The response of the group's coordinator. Follows it to another broker.

        `code_of` finds the error code in the response, and `limit` is the highest version to use. Raises
        KafkaUnreachable if there is no coordinator within `patience_s`. Any: a request of any API, and its response.
        """
        loop = asyncio.get_running_loop()
        deadline, pause_s, is_repeated = loop.time() + patience_s, _FIRST_PAUSE_S, False
        while True:
            try:
                node_id = await self.coordinator_of(group_id, refresh=is_repeated)
                version = None if limit is None else (await self._cluster.connection(node_id)).version_of(*limit)
                response = await self._cluster.ask(node_id, request, version=version)
                code = code_of(response)
                if code not in MOVED:
                    return response
                failure = KafkaUnreachable(f"the coordinator of group {group_id!r} answers {error_name(code)}")
            except KafkaUnreachable as unreachable:
                failure = unreachable
            if loop.time() + pause_s > deadline:
                raise failure
            await asyncio.sleep(pause_s)
            pause_s, is_repeated = min(2 * pause_s, _LONGEST_PAUSE_S), True

    async def describe(self, group_id: str) -> DescribedGroup:
        """A group that does not exist, or not as a classic group, has the state Dead."""
        request = DescribeGroupsRequest(groups=[group_id])
        response: DescribeGroupsResponse = await self.ask(group_id, request, lambda one: one.groups[0].error_code)
        described = response.groups[0]
        if described.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            raise refused(f"DescribeGroups of {group_id!r}", described.error_code)
        return described

    async def describe_at(self, node_id: int, group_ids: Sequence[str]) -> list[DescribedGroup]:
        """The groups that the broker can describe now."""
        response: DescribeGroupsResponse = await self._cluster.ask(
            node_id, DescribeGroupsRequest(groups=list(group_ids))
        )
        return [one for one in response.groups if one.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)]

    async def list_at(self, node_id: int) -> list[ListedGroup]:
        """The groups that this broker coordinates."""
        response: ListGroupsResponse = await self._cluster.ask(node_id, ListGroupsRequest())
        if response.error_code in MOVED:
            raise KafkaUnreachable(f"ListGroups of broker {node_id} answers {error_name(response.error_code)}")
        if response.error_code != ErrorCode.NONE:
            raise refused(f"ListGroups of broker {node_id}", response.error_code)
        return response.groups

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        response: HeartbeatResponse = await self.ask(request.group_id, request, lambda one: int(one.error_code))
        return known_code(response.error_code)

    async def leave(self, group_id: str, instance_id: str) -> None:
        """Removes a static member. It is no error if there is none."""
        request = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity("", instance_id)])
        response: LeaveGroupResponse = await self.ask(group_id, request, _code_of_leaving)
        code = _code_of_leaving(response)
        if code not in _NOT_THERE:
            raise refused(f"LeaveGroup of {group_id!r}", code)


def _code_of_leaving(response: LeaveGroupResponse) -> int:
    if response.error_code != ErrorCode.NONE or not response.members:
        return response.error_code
    return response.members[0].error_code


def refused(what: str, code: int) -> KafkaRefused:
    return KafkaRefused(f"{what} is answered with {error_name(code)} by Kafka", known_code(code))


def has_members(group: ListedGroup | DescribedGroup) -> bool:
    """Whether the group has members. An old broker does not list states, so it has to describe the group."""
    return group.group_state not in _GONE


def members_of(group: DescribedGroup) -> tuple[str, ...]:
    """Its members for an error message: the client's id, or its instance id, and its host."""
    return tuple(
        f"{one.group_instance_id or one.client_id or one.member_id} at {one.client_host.lstrip('/')}"
        for one in group.members
    )


def some_of(members: Sequence[str]) -> str:
    """The first members as text."""
    shown = ", ".join(members[:_MOST_SHOWN])
    return shown if len(members) <= _MOST_SHOWN else f"{shown} and {len(members) - _MOST_SHOWN} more"
