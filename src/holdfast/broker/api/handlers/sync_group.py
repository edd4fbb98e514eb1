"""SyncGroup: delivers or fetches the assignment. Parked until the leader has delivered it."""

from __future__ import annotations

from typing import Any

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest


@handler(SYNC_GROUP)
def sync_group(services: GroupServices, request: SyncGroupRequest, context: RequestContext) -> Any:
    groups = services.groups
    return groups.submit_without_task(
        groups.coordinator.sync_group, request, context.api_version, groups.client_of(context)
    )
