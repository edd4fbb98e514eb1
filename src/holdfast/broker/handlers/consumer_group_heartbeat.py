"""ConsumerGroupHeartbeat: refused. Holdfast serves the classic protocol, in which the clients assign.

It is advertised all the same, as by an Apache Kafka whose newer protocol is switched off: librdkafka takes its absence
for a coordinator that is away, looks for it again for ever, and tells nobody.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

ADVICE: Final = "Holdfast serves the classic group protocol only: set group.protocol=classic on the consumer"
LOGGED_CHARS: Final = 100


@handles(CONSUMER_GROUP_HEARTBEAT)
def consumer_group_heartbeat(
    _broker: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    _tell(request.group_id[:LOGGED_CHARS], (context.client_id or "")[:LOGGED_CHARS], context.client_host)
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=ADVICE)


@lru_cache(maxsize=1_000)
def _tell(group_id: str, client_id: str, client_host: str) -> None:
    """Once for each consumer, however often it asks: the cache is what remembers. As Python writes the names: they may
    have line ends in them."""
    logger.warning("group %r: %r at %s has group.protocol=consumer. %s", group_id, client_id, client_host, ADVICE)
