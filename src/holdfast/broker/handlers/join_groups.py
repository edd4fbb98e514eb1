"""JoinGroups (Holdfast's own): the members of one process join together. Parked until each of them has its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import Disconnect, RequestContext, handles
from holdfast.broker.groups import Ticket
from holdfast.broker.handlers.join_group import MOST_PROTOCOLS
from holdfast.coordinator.batch_join import MOST_MEMBERS
from holdfast.wire.apis.join_group import JoinGroupResponse
from holdfast.wire.apis.join_groups import JOIN_GROUPS, JoinGroupsRequest, JoinGroupsResponse, JoinGroupsResult

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

MOST_PROTOCOLS_EACH: Final = 10
"""On average; a single member may offer as many as in a JoinGroup."""


@handles(JOIN_GROUPS)
async def join_groups(broker: Broker, request: JoinGroupsRequest, context: RequestContext) -> JoinGroupsResponse:
    if len(request.members) > MOST_MEMBERS:
        raise Disconnect(f"JoinGroups with {len(request.members)} members; at most {MOST_MEMBERS} may join at once")
    protocols = sum(len(member.protocols) for member in request.members)
    if protocols > max(MOST_PROTOCOLS, MOST_PROTOCOLS_EACH * len(request.members)):
        raise Disconnect(f"JoinGroups with {protocols} protocols of {len(request.members)} members")
    groups = broker.groups
    await groups.journal.ensure()
    client = groups.client(context)
    tickets = [Ticket() for _ in request.members]
    fresh_ids = [groups.fresh_id() for _ in request.members]
    groups.perform(lambda now_ms: groups.coordinator.join_groups(request, client, tickets, fresh_ids, now_ms))
    return JoinGroupsResponse(results=[_result(await ticket.wait()) for ticket in tickets])


def _result(answer: JoinGroupResponse) -> JoinGroupsResult:
    return JoinGroupsResult(
        error_code=answer.error_code,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=answer.members,
    )
