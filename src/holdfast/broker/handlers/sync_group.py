"""SyncGroup: bring or fetch the assignment. Parked until the leader has brought it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(SYNC_GROUP)
def sync_group(broker: Broker, request: SyncGroupRequest, context: RequestContext) -> Any:
    groups = broker.groups
    client = groups.client(context)
    return groups.ask(
        lambda ticket, now_ms: groups.coordinator.sync_group(request, context.api_version, client, ticket, now_ms)
    )
