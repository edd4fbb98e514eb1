"""Heartbeat: a member is alive, and hears whether it must rejoin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(HEARTBEAT)
def heartbeat(broker: Broker, request: HeartbeatRequest, context: RequestContext) -> Any:
    groups = broker.groups
    client = groups.client(context)
    return groups.ask(lambda ticket, now_ms: groups.coordinator.heartbeat(request, client, ticket, now_ms))
