"""UpdateFeatures: no feature has a version that could change (docs/differences.md, 64), so each update is rejected.

The messages are Kafka's, and as in Kafka all updates of a request fail with the first. An empty request succeeds.
"""

from __future__ import annotations

from typing import Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.wire.apis.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from holdfast.wire.error_codes import ErrorCode

UPGRADE_TYPES: Final = (1, 2, 3)
"""Upgrade, safe downgrade, unsafe downgrade."""


@handler(UPDATE_FEATURES)
def update_features(
    services: Services,
    request: UpdateFeaturesRequest,
    context: RequestContext,  # noqa: ARG001
) -> UpdateFeaturesResponse:
    updates = request.feature_updates
    if not updates:
        return UpdateFeaturesResponse(error_message=None)
    # As in Kafka, the last of several updates for one feature counts.
    update = next(one for one in reversed(updates) if one.feature == updates[0].feature)
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message="The update failed for all features since the following feature had an error: "
        f"Invalid update version {update.max_version_level} for feature {update.feature}. "
        f"{_reason(services.node_id, update)}",
    )


def _reason(node_id: int, update: FeatureUpdateKey) -> str:
    if update.upgrade_type not in UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    if update.max_version_level < 0:
        return "A feature version cannot be less than 0."
    if update.max_version_level == 0:
        return f"Feature {update.feature} not found."
    return f"Local controller {node_id} does not support this feature."
