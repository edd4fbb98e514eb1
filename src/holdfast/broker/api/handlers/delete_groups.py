"""DeleteGroups: deletes empty groups, with their offsets."""

from __future__ import annotations

from collections.abc import Coroutine

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.broker.util.slices import sliced_unique
from holdfast.wire.apis.delete_groups import (
    DELETE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@handler(DELETE_GROUPS)
async def delete_groups(
    services: GroupServices,
    request: DeleteGroupsRequest,
    context: RequestContext,  # noqa: ARG001
) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    async for group_id in services.slices.iterate(await services.slices.run(sliced_unique(request.groups_names))):
        answer = services.groups.submit(services.groups.coordinator.delete_group, group_id)
        code = await answer if isinstance(answer, Coroutine) else answer
        results.append(DeletableGroupResult(group_id, code))
    return DeleteGroupsResponse(results=results)
