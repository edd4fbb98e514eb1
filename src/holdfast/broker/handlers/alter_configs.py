"""AlterConfigs: the whole configuration of a topic anew. What is not named goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker.config_resources import alter_all, alter_resource, refuse_null
from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.slices import each
from holdfast.wire.apis.alter_configs import (
    ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(ALTER_CONFIGS)
async def alter_configs(
    broker: Broker,
    request: AlterConfigsRequest,
    context: RequestContext,
) -> AlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        overrides = {config.name: refuse_null(config.name, config.value) for config in resource.configs}
        await alter_resource(
            broker, resource, lambda _: overrides, context=context, validate_only=request.validate_only
        )

    outcomes = await alter_all(broker, request.resources, alter)
    return AlterConfigsResponse(responses=await broker.slices.finish(each(_response, outcomes)))


def _response(outcome: tuple[AlterConfigsResource, ErrorCode, str | None]) -> AlterConfigsResourceResponse:
    resource, code, message = outcome
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
