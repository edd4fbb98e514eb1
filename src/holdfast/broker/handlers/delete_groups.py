"""DeleteGroups: empty groups go, with their offsets."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.groups import Ticket
from holdfast.broker.slices import unique
from holdfast.coordinator.effects import Effects
from holdfast.wire.apis.delete_groups import (
    DELETE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(DELETE_GROUPS)
async def delete_groups(
    broker: Broker,
    request: DeleteGroupsRequest,
    context: RequestContext,  # noqa: ARG001
) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    async for group_id in broker.slices.over(await broker.slices.finish(unique(request.groups_names))):
        answer = broker.groups.ask(partial(_delete, broker, group_id))
        code = await answer if isinstance(answer, Coroutine) else answer
        results.append(DeletableGroupResult(group_id, code))
    return DeleteGroupsResponse(results=results)


def _delete(broker: Broker, group_id: str, ticket: Ticket, now_ms: int) -> Effects:
    return broker.groups.coordinator.delete_group(group_id, ticket, now_ms)
