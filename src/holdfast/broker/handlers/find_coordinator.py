"""FindCoordinator: this broker coordinates every group; of transactions there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.slices import Work, each
from holdfast.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

GROUP: Final = 0
TRANSACTION: Final = 1
BATCHED_SINCE: Final = 4
"""From here on many keys are asked for at once (KIP-699)."""


@handles(FIND_COORDINATOR)
def find_coordinator(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> Work[FindCoordinatorResponse]:
    if context.api_version >= BATCHED_SINCE:
        found_all = yield from each(
            lambda key: _found(broker, context, key, request.key_type), request.coordinator_keys
        )
        return FindCoordinatorResponse(coordinators=found_all)
    found = _found(broker, context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        # As Kafka: the one-key versions spell out that there is no error.
        error_message=found.error_message or ErrorCode.NONE.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _found(broker: Broker, context: RequestContext, key: str, key_type: int) -> FoundCoordinator:
    if key_type == TRANSACTION:
        broker.transaction_refusals.log(context.client_id, context.client_host, key)
        # The one error that clients take as final, so that they say so instead of asking again.
        return _refused(
            key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Holdfast has no transactions: unset transactional.id"
        )
    if key_type != GROUP:
        return _refused(key, ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not served")
    host, port = context.advertised
    return FoundCoordinator(
        key=key, node_id=broker.node_id, host=host, port=port, error_code=ErrorCode.NONE, error_message=""
    )


def _refused(key: str, code: ErrorCode, message: str) -> FoundCoordinator:
    return FoundCoordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
