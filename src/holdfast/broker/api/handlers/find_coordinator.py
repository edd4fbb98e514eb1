"""FindCoordinator: this broker coordinates every group; there are no transactions."""

from __future__ import annotations

from typing import Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.util.slices import Work, sliced_map
from holdfast.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from holdfast.wire.error_codes import ErrorCode

GROUP: Final = 0
TRANSACTION: Final = 1
BATCHED_SINCE: Final = 4
"""From this version on, a request has several keys (KIP-699)."""


@handler(FIND_COORDINATOR)
def find_coordinator(
    services: Services, request: FindCoordinatorRequest, context: RequestContext
) -> Work[FindCoordinatorResponse]:
    if context.api_version >= BATCHED_SINCE:
        found_all = yield from sliced_map(
            lambda key: _found(services, context, key, request.key_type), request.coordinator_keys
        )
        return FindCoordinatorResponse(coordinators=found_all)
    found = _found(services, context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        # As in Kafka, the versions with one key have a message without an error.
        error_message=found.error_message or ErrorCode.NONE.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _found(services: Services, context: RequestContext, key: str, key_type: int) -> FoundCoordinator:
    if key_type == TRANSACTION:
        services.rejected_transactions.log(context.client_id, context.client_host, key)
        # The one error that clients treat as fatal, so that they report it instead of retrying.
        return _refused(
            key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Holdfast has no transactions: unset transactional.id"
        )
    if key_type != GROUP:
        return _refused(key, ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not served")
    host, port = context.advertised
    return FoundCoordinator(
        key=key, node_id=services.node_id, host=host, port=port, error_code=ErrorCode.NONE, error_message=""
    )


def _refused(key: str, code: ErrorCode, message: str) -> FoundCoordinator:
    return FoundCoordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
