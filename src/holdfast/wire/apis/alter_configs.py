"""AlterConfigs: replaces all configs of resources. Configs that are not named return to their defaults.

v2 is the first flexible version. v1 changed no field.
"""

from holdfast.wire.fields import array, boolean, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

ALTER_CONFIGS = Api(33, "AlterConfigs", versions=(0, 2), flexible=2)


@struct_type
class AlterableConfig:
    name: str = string()
    value: str | None = string(nullable=0)


@struct_type
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@request(ALTER_CONFIGS)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct_type
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()


@response(ALTER_CONFIGS)
class AlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
