"""Which broker is at an address. Only broker N itself describes the configs of the resource BROKER N."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from holdfast.client.errors import error_code
from holdfast.gateway.kafka.connection import KafkaConnection
from holdfast.gateway.kafka.errors import KafkaRefused
from holdfast.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from holdfast.wire.error_codes import ErrorCode

_BROKER: Final = 4
"""The type of the resource (Kafka's ConfigResource)."""
_ANY_CONFIG: Final = "log.dirs"
"""One name, because an empty list would request all configs."""


async def identify(connection: KafkaConnection, candidates: Collection[int], *, timeout_s: float) -> int | None:
    """Which of these brokers answers on the connection; None if it is another one.

    Raises KafkaRefused if the gateway may not describe the brokers' configs.
    """
    by_name = {str(node_id): node_id for node_id in candidates}
    resources = [DescribeConfigsResource(_BROKER, name, [_ANY_CONFIG]) for name in by_name]
    response: DescribeConfigsResponse = await connection.ask(DescribeConfigsRequest(resources), timeout_s=timeout_s)
    for result in response.results:
        if result.error_code == ErrorCode.NONE and result.resource_name in by_name:
            return by_name[result.resource_name]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST):
            code = error_code(result.error_code)
            raise KafkaRefused(
                f"{connection.address}: cannot find out its broker id, because DescribeConfigs of broker "
                f"{result.resource_name} is answered with {code.name}: give --kafka ID=HOST:PORT for each broker, or "
                "allow the gateway's user DescribeConfigs on the cluster",
                code,
            )
    return None
