"""Requests of members, with what the coordinator's driver adds to them.

Named tuples, here and in `member`, where one is made for every request: they are as immutable as frozen dataclasses,
and made in a sixth of the time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.coordinator.classic.member import Client, Member, PendingResponse, Protocol
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.apis.sync_group import SyncGroupRequest

FIRST_LEAVE_WITH_MEMBERS: Final = 3


class Join(NamedTuple):
    request: JoinGroupRequest
    api_version: int
    client: Client
    reply_handle: object
    fresh_id: str
    """Random; the part of a new member id that makes it unique."""
    protocols: tuple[Protocol, ...]

    @classmethod
    def of(
        cls, request: JoinGroupRequest, api_version: int, client: Client, reply_handle: object, fresh_id: str
    ) -> Join:
        # Each name once: the first of a name counts, and the order is the vote.
        offered: dict[str, Protocol] = {}
        for protocol in request.protocols:
            offered.setdefault(protocol.name, Protocol(protocol.name, protocol.metadata))
        return cls(request, api_version, client, reply_handle, fresh_id, tuple(offered.values()))

    @property
    def pending_response(self) -> PendingResponse:
        return PendingResponse(self.reply_handle, self.api_version)

    @property
    def rebalance_timeout_ms(self) -> int:
        timeout_ms = self.request.rebalance_timeout_ms
        # JoinGroup v0 has no rebalance timeout: the session's serves for it.
        return timeout_ms if timeout_ms >= 0 else self.request.session_timeout_ms

    def new_member(self, member_id: str, now_ms: int) -> Member:
        return Member(
            id=member_id,
            instance_id=self.request.group_instance_id,
            client=self.client,
            session_timeout_ms=self.request.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            process_seen_ms=now_ms,
            awaiting_join=self.pending_response,
        )


class Sync(NamedTuple):
    request: SyncGroupRequest
    api_version: int
    client: Client
    reply_handle: object

    @property
    def has_tags(self) -> bool:
        """Whether the request has Holdfast's own tagged fields, so that the response may have them."""
        request = self.request
        return request.wants_epoch or request.failure is not None or request.resync_from_epoch >= 0


class Heartbeat(NamedTuple):
    request: HeartbeatRequest
    client: Client
    reply_handle: object


class Leave(NamedTuple):
    request: LeaveGroupRequest
    api_version: int
    client: Client
    reply_handle: object
    is_logged: bool = False
    """Entries without ids were logged with an earlier part of the request."""

    @property
    def members(self) -> list[MemberIdentity]:
        if self.api_version >= FIRST_LEAVE_WITH_MEMBERS:
            return self.request.members
        return [MemberIdentity(self.request.member_id)]
