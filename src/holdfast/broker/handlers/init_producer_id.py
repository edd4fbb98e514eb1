"""InitProducerId: an id for an idempotent producer.

As in Kafka, a producer without a transactional id gets a new one each time, even if it names the id and epoch it has:
only a transactional id gives a name under which a broker could remember them (KIP-360). Holdfast has no transactions;
a transactional id is refused with the one error that clients take as final, so that they say so instead of retrying.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.log import StorageError
from holdfast.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

NONE: Final = -1


@handles(INIT_PRODUCER_ID)
async def init_producer_id(
    broker: Broker, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    if request.transactional_id:
        broker.transaction_refusals.log(context.client_id, context.client_host, request.transactional_id)
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.transactional_id == "" or (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await broker.producer_ids.next()
    except StorageError as error:
        logger.error("%s", error)
        return _refused(ErrorCode.KAFKA_STORAGE_ERROR)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)
