"""AddMembersToGroup (Holdfast's own, KIP-469): static members are about to join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.add_members_to_group import ADD_MEMBERS_TO_GROUP, AddMembersToGroupRequest

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(ADD_MEMBERS_TO_GROUP)
def add_members_to_group(broker: Broker, request: AddMembersToGroupRequest, context: RequestContext) -> Any:
    groups = broker.groups
    client = groups.client(context)
    return groups.ask(lambda ticket, now_ms: groups.coordinator.add_members(request, client, ticket, now_ms))
