"""AddOffsetsToTxn: a transaction will contain offsets of a group.

v3 is the first flexible version. v1, v2 and v4 changed no field.
"""

from holdfast.wire.fields import int16, int32, int64, string
from holdfast.wire.message import Api, request, response

ADD_OFFSETS_TO_TXN = Api(25, "AddOffsetsToTxn", versions=(0, 4), flexible=3)


@request(ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@response(ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
