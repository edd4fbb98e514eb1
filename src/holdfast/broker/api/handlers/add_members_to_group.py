"""AddMembersToGroup (Holdfast's own, KIP-469): registers static members that are about to join."""

from __future__ import annotations

from typing import Any

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.wire.apis.add_members_to_group import ADD_MEMBERS_TO_GROUP, AddMembersToGroupRequest


@handler(ADD_MEMBERS_TO_GROUP)
def add_members_to_group(services: GroupServices, request: AddMembersToGroupRequest, context: RequestContext) -> Any:
    groups = services.groups
    return groups.submit(groups.coordinator.add_members, request, groups.client_of(context))
