"""ApiVersions: the APIs and versions that a broker supports. It is a client's first request.

v1 adds the throttle time, v3 the client's software name and version and the feature tags (KIP-584); v3 is the first
flexible version. v4 has the layout of v3; from it on a feature may have the minimum version 0. The response's header
never has tags in any version, because a client must be able to read the rejection of its version.
"""

from holdfast.wire.fields import array, boolean, int16, int32, int64, string
from holdfast.wire.message import Api, request, response, struct_type

API_VERSIONS = Api(18, "ApiVersions", versions=(0, 4), flexible=3)


@request(API_VERSIONS)
class ApiVersionsRequest:
    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)


@struct_type
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct_type
class SupportedFeatureKey:
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@struct_type
class FinalizedFeatureKey:
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@response(API_VERSIONS)
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0, ignorable=True)
    finalized_features_epoch: int = int64(since=3, tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2, ignorable=True)
    zk_migration_ready: bool = boolean(since=3, tag=3, ignorable=True)
