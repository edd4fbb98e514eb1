"""DescribeConfigs: the configs of topics, brokers and groups, and the source of each value.

The definitions start at v1, which has a value's source and its synonyms (KIP-226). v3 adds type and documentation
(KIP-569); v4 is the first flexible version. v2 changed no field.
"""

from holdfast.wire.fields import array, boolean, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", versions=(1, 4), flexible=4)


@struct_type
class DescribeConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string(), nullable=0)


@request(DESCRIBE_CONFIGS)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


@struct_type
class DescribedConfigSynonym:
    name: str = string()
    value: str | None = string(nullable=0)
    source: int = int8()


@struct_type
class DescribedConfig:
    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribedConfigSynonym] = array(DescribedConfigSynonym)
    config_type: int = int8(since=3, ignorable=True)
    documentation: str | None = string(since=3, nullable=3, ignorable=True)


@struct_type
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribedConfig] = array(DescribedConfig)


@response(DESCRIBE_CONFIGS)
class DescribeConfigsResponse:
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
