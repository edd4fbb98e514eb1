"""CancelRegistration (Holdfast's own): removes the registration of members that will not join."""

from __future__ import annotations

from typing import Any

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.wire.apis.cancel_registration import CANCEL_REGISTRATION, CancelRegistrationRequest


@handler(CANCEL_REGISTRATION)
def cancel_registration(services: GroupServices, request: CancelRegistrationRequest, context: RequestContext) -> Any:
    groups = services.groups
    return groups.submit(groups.coordinator.cancel_registration, request, groups.client_of(context))
