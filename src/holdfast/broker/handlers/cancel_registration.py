"""CancelRegistration (Holdfast's own): announced members do not come after all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.cancel_registration import CANCEL_REGISTRATION, CancelRegistrationRequest

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(CANCEL_REGISTRATION)
def cancel_registration(broker: Broker, request: CancelRegistrationRequest, context: RequestContext) -> Any:
    groups = broker.groups
    client = groups.client(context)
    return groups.ask(lambda ticket, now_ms: groups.coordinator.cancel_registration(request, client, ticket, now_ms))
