"""IncrementalAlterConfigs: changes single configs (KIP-339): 0 sets, 1 deletes, 2 appends to a list, 3 subtracts from
it.

v1 is the first flexible version.
"""

from holdfast.wire.fields import array, boolean, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", versions=(0, 1), flexible=1)


@struct_type
class IncrementalAlterableConfig:
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=0)


@struct_type
class IncrementalAlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


@request(INCREMENTAL_ALTER_CONFIGS)
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


@struct_type
class IncrementalAlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()


@response(INCREMENTAL_ALTER_CONFIGS)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[IncrementalAlterConfigsResourceResponse] = array(IncrementalAlterConfigsResourceResponse)
