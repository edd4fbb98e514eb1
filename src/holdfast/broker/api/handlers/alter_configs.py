"""AlterConfigs: replaces all configs of a resource. Configs that are not named return to their defaults."""

from __future__ import annotations

from holdfast.broker.api.handlers._alter_configs import alter_all, alter_resource, reject_null
from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.util.slices import sliced_map
from holdfast.wire.apis.alter_configs import (
    ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from holdfast.wire.error_codes import ErrorCode


@handler(ALTER_CONFIGS)
async def alter_configs(
    services: Services,
    request: AlterConfigsRequest,
    context: RequestContext,
) -> AlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        overrides = {config.name: reject_null(config.name, config.value) for config in resource.configs}
        await alter_resource(
            services, resource, lambda _: overrides, context=context, validate_only=request.validate_only
        )

    outcomes = await alter_all(services, request.resources, alter)
    return AlterConfigsResponse(responses=await services.slices.run(sliced_map(_response, outcomes)))


def _response(outcome: tuple[AlterConfigsResource, ErrorCode, str | None]) -> AlterConfigsResourceResponse:
    resource, code, message = outcome
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
