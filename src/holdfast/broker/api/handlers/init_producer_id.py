"""InitProducerId: an id for an idempotent producer.

As in Kafka, a producer without a transactional id gets a new producer id each time, even if it sends its current id and
epoch. A broker can keep them only under a transactional id (KIP-360). Holdfast has no transactions; a transactional id
is rejected with the one error that clients treat as fatal, so that they report it and do not retry.
"""

from __future__ import annotations

import logging
from typing import Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.log import StorageError
from holdfast.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

NONE: Final = -1


@handler(INIT_PRODUCER_ID)
async def init_producer_id(
    services: Services, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    if request.transactional_id:
        services.rejected_transactions.log(context.client_id, context.client_host, request.transactional_id)
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.transactional_id == "" or (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await services.producer_ids.next()
    except StorageError as error:
        logger.error("%s", error)
        return _refused(ErrorCode.KAFKA_STORAGE_ERROR)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)
