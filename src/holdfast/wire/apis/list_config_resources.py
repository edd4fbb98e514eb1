"""ListConfigResources: the names of all resources with configs, by type (KIP-1142).

v0 is ListClientMetricsResources (KIP-714): the request has no types, and the response lists only client metrics.
Flexible from the start.
"""

from holdfast.wire.fields import array, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

LIST_CONFIG_RESOURCES = Api(74, "ListConfigResources", versions=(0, 1), flexible=0)


@request(LIST_CONFIG_RESOURCES)
class ListConfigResourcesRequest:
    resource_types: list[int] = array(int8(), since=1)


@struct_type
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8(since=1, default=16, ignorable=True)


@response(LIST_CONFIG_RESOURCES)
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
