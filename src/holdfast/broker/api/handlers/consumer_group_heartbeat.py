"""ConsumerGroupHeartbeat: rejected. Holdfast serves the classic protocol, in which clients assign partitions.

It is advertised nevertheless, as by an Apache Kafka whose newer protocol is disabled: if it is missing, librdkafka
assumes that the coordinator is unavailable and retries for ever without an error.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

ADVICE: Final = "Holdfast serves the classic group protocol only: set group.protocol=classic on the consumer"
LOGGED_CHARS: Final = 100


@handler(CONSUMER_GROUP_HEARTBEAT)
def consumer_group_heartbeat(
    _services: Services, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    _log_once(request.group_id[:LOGGED_CHARS], (context.client_id or "")[:LOGGED_CHARS], context.client_host)
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=ADVICE)


@lru_cache(maxsize=1_000)
def _log_once(group_id: str, client_id: str, client_host: str) -> None:
    """Logged once for each consumer, because of the cache. With %r: the names come from clients and may contain line
    breaks."""
    logger.warning("group %r: %r at %s has group.protocol=consumer. %s", group_id, client_id, client_host, ADVICE)
