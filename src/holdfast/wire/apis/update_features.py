"""UpdateFeatures: changes the versions of a cluster's features (KIP-584).

Flexible from the start. v1 adds validation without a change, and the type of downgrade that is allowed; v2 has one
error for all updates.
"""

from holdfast.wire.fields import array, boolean, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

UPDATE_FEATURES = Api(57, "UpdateFeatures", versions=(0, 2), flexible=0)


@struct_type
class FeatureUpdateKey:
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(since=1, default=1)


@request(UPDATE_FEATURES)
class UpdateFeaturesRequest:
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


@struct_type
class UpdatableFeatureResult:
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@response(UPDATE_FEATURES)
class UpdateFeaturesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, ignorable=True)
