"""Joins a group in Kafka's own coordinator, as its only member, so that no other client can use the group there.

The member is static (KIP-345) and has the protocol type `holdfast`. While the group has it, Kafka refuses members with
another protocol type (INCONSISTENT_GROUP_PROTOCOL) and commits without membership (UNKNOWN_MEMBER_ID). Its session
outlives a restart of the gateway. After the restart, the gateway joins with the same instance id and gets the place of
the member.

The name of the group is taken as soon as Kafka has the member. Kafka answers the JoinGroup later; see
`join_connections`. DescribeGroups shows it before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import chain, repeat
from typing import Final, NamedTuple

from holdfast.broker.structured_log import log_event
from holdfast.gateway.join_connections import JoinConnections, Lease
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka_groups import MOVED, PATIENCE_S, KafkaGroups, has_members, members_of, refused, some_of
from holdfast.gateway.state.codes import known_code
from holdfast.gateway.upstream import Upstream
from holdfast.wire.apis.describe_groups import DescribedGroup
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from holdfast.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "holdfast"
"""The protocol type of the gateway's members in Kafka, and the name of their only protocol."""
INSTANCE_ID: Final = "holdfast-gateway"
SESSION_TIMEOUTS_MS: Final = (1_800_000, 600_000, 120_000, 45_000, 10_000, 6_000)
"""The first one that Kafka accepts is used. By default, `group.max.session.timeout.ms` is the first, and
`group.min.session.timeout.ms` the last of them."""

_SHORT_SESSION_MS: Final = 600_000
_REBALANCE_TIMEOUT_MS: Final = 300_000
"""Kafka removes a member that does not send SyncGroup within this time."""
_CONNECTIONS: Final = 16
_FIRST_STATIC_VERSION: Final = 5
_JOIN_TIMEOUT_S: Final = 120.0
"""Kafka's delay for a new group is 3 s by default, and an operator may have raised it."""
_LOOKS_S: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5)
"""Pauses between two looks at a group whose JoinGroup is not answered; the last one is repeated."""
_USUAL_DELAY_S: Final = 3.2
"""A little more than Kafka's default of `group.initial.rebalance.delay.ms`."""
_DELAYED: Final = "PreparingRebalance"
"""The state of a new group while Kafka waits for more members."""
_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.2
_REJOIN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
_IN_USE: Final = frozenset(
    {ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.GROUP_ID_NOT_FOUND}
)
"""Kafka's answers if the group has other members, or is a group of the newer protocols."""


class NameInUse(Exception):
    """The group has members in Kafka's own coordinator."""

    def __init__(self, group_id: str, members: tuple[str, ...]) -> None:
        who = f": {some_of(members)}" if members else " of another group protocol"
        super().__init__(
            f"group {group_id!r} is in use in Kafka itself, by members that do not use the gateway{who}. "
            "Stop them, or let them connect to the gateway"
        )
        self.group_id: Final = group_id
        self.members: Final = members


class HeldMember(NamedTuple):
    """The gateway's member of a group in Kafka."""

    member_id: str
    generation: int


class NameClaims:
    def __init__(self, cluster: Upstream, groups: KafkaGroups, *, connections: int = _CONNECTIONS) -> None:
        self._groups = groups
        self._connections = JoinConnections(cluster.open_connection, connections)
        self._session = 0
        """The index of the session timeout that Kafka accepts."""

    @property
    def session_timeout_s(self) -> float:
        return SESSION_TIMEOUTS_MS[self._session] / 1000

    @property
    def connection_count(self) -> int:
        return self._connections.count

    def close(self) -> None:
        self._connections.close()

    async def claim(self, group_id: str, on_taken: Callable[[], None]) -> HeldMember:
        """Joins the group. Calls `on_taken` as soon as Kafka has the member, and returns when the group is stable.

        Raises NameInUse, KafkaUnreachable or KafkaRefused. A KafkaRefused with FENCED_INSTANCE_ID means that another
        gateway has joined at the same time.
        """
        loop = asyncio.get_running_loop()
        deadline, attempts, is_repeated = loop.time() + PATIENCE_S, 0, False
        while True:
            node_id = await self._groups.coordinator_of(group_id, refresh=is_repeated)
            session = self._session
            try:
                code, member = await self._join(group_id, node_id, session, on_taken)
            except KafkaUnreachable:
                if is_repeated:
                    raise
                is_repeated = True  # the coordinator may be at another broker now
                continue
            if member is not None:
                return member
            if code is None or (code == ErrorCode.INVALID_SESSION_TIMEOUT and self._use_shorter_session(session)):
                continue
            attempts += 1
            if code in _IN_USE and attempts < _ATTEMPTS:
                await self._require_unused(group_id, node_id)
            elif code in MOVED and loop.time() > deadline:
                raise KafkaUnreachable(f"JoinGroup of {group_id!r} is answered with {code.name} by Kafka")
            elif code not in MOVED and (code not in _REJOIN or attempts >= _ATTEMPTS):
                raise refused(f"JoinGroup of {group_id!r} as {INSTANCE_ID!r}", code)
            is_repeated = code in MOVED
            await asyncio.sleep(_PAUSE_S)

    async def heartbeat(self, group_id: str, member: HeldMember) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=INSTANCE_ID,
        )
        return await self._groups.heartbeat(request)

    async def leave(self, group_id: str) -> None:
        await self._groups.leave(group_id, INSTANCE_ID)

    # -- one attempt ---------------------------------------------------------------------------------------------------

    async def _join(
        self, group_id: str, node_id: int, session: int, on_taken: Callable[[], None]
    ) -> tuple[ErrorCode | None, HeldMember | None]:
        """Without a code, the connection was revoked, and a second JoinGroup is answered at once."""
        lease = await self._connections.acquire(node_id)
        is_reusable = False
        try:
            answer = await self._join_on(lease, group_id, session, on_taken)
            if answer is None:
                await self._wait_until_joined(group_id)
                return None, None
            code, member = known_code(answer.error_code), None
            if code is ErrorCode.NONE:
                on_taken()
                code, member = await self._sync(lease, group_id, answer)
            is_reusable = True
            return code, member
        finally:
            self._connections.release(lease, is_reusable=is_reusable)

    async def _join_on(
        self, lease: Lease, group_id: str, session: int, on_taken: Callable[[], None]
    ) -> JoinGroupResponse | None:
        """The answer to the JoinGroup; None if the connection was revoked."""
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=SESSION_TIMEOUTS_MS[session],
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            group_instance_id=INSTANCE_ID,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(PROTOCOL_TYPE, b"")],
            reason="the gateway holds the name of the group",
        )
        version = lease.connection.version_of(JOIN_GROUP)
        if version < _FIRST_STATIC_VERSION:
            raise KafkaRefused(
                "Kafka has no static members, with which the gateway holds the names of its groups: "
                "it needs Kafka 2.3 or newer",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        answer = lease.connection.send(request, version, timeout_s=_JOIN_TIMEOUT_S)
        for pause_s in chain(_LOOKS_S, repeat(_LOOKS_S[-1])):
            await asyncio.wait((answer,), timeout=pause_s)
            if answer.done():
                break
            described = await self._groups.describe(group_id)
            if is_ours(described):
                on_taken()
                if described.group_state == _DELAYED and not answer.done():
                    self._connections.make_revocable(lease)
                await asyncio.wait((answer,))
        if lease.is_revoked:
            return None
        response: JoinGroupResponse = answer.result()
        return response

    async def _wait_until_joined(self, group_id: str) -> None:
        """Until Kafka's delay for a new group is over. A JoinGroup is then answered at once."""
        deadline = asyncio.get_running_loop().time() + _JOIN_TIMEOUT_S
        await asyncio.sleep(_USUAL_DELAY_S)
        while (await self._groups.describe(group_id)).group_state == _DELAYED:
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaUnreachable(f"group {group_id!r} is in the state {_DELAYED} for {_JOIN_TIMEOUT_S:.0f} s")
            await asyncio.sleep(_LOOKS_S[-1])

    async def _sync(
        self, lease: Lease, group_id: str, joined: JoinGroupResponse
    ) -> tuple[ErrorCode, HeldMember | None]:
        is_leader = joined.leader == joined.member_id
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=INSTANCE_ID,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL_TYPE,
            assignments=[SyncGroupRequestAssignment(joined.member_id, b"")] if is_leader else [],
        )
        response: SyncGroupResponse = await lease.connection.ask(request)
        code = known_code(response.error_code)
        return code, HeldMember(joined.member_id, joined.generation_id) if code is ErrorCode.NONE else None

    # -- answers -------------------------------------------------------------------------------------------------------

    async def _require_unused(self, group_id: str, node_id: int) -> None:
        """Raises NameInUse, unless the other members have left since Kafka refused ours."""
        described = await self._groups.describe(group_id)
        if members := members_of(described):
            raise NameInUse(group_id, members)
        # DescribeGroups does not describe groups of the newer protocols (KIP-848, KIP-932).
        for listed in await self._groups.list_at(node_id):
            if listed.group_id == group_id and listed.protocol_type != PROTOCOL_TYPE and has_members(listed):
                raise NameInUse(group_id, ())

    def _use_shorter_session(self, session: int) -> bool:
        """Whether there is a shorter one than the one that Kafka has refused."""
        if session + 1 == len(SESSION_TIMEOUTS_MS):
            return False
        if session == self._session:  # another claim may have been faster
            self._session += 1
            self._warn_of_short_session(SESSION_TIMEOUTS_MS[self._session])
        return True

    def _warn_of_short_session(self, session_timeout_ms: int) -> None:
        if session_timeout_ms < _SHORT_SESSION_MS:
            log_event(
                logger,
                "Kafka allows only short sessions, so direct clients can use the gateway's groups soon after the "
                "gateway stops: raise group.max.session.timeout.ms",
                logging.WARNING,
                session_timeout_ms=session_timeout_ms,
            )


def is_ours(group: DescribedGroup) -> bool:
    """Whether the gateway's member is in the group."""
    return group.protocol_type == PROTOCOL_TYPE and any(one.group_instance_id == INSTANCE_ID for one in group.members)
