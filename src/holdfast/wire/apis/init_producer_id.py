"""InitProducerId: an idempotent or transactional producer gets its id and epoch.

v2 is the first flexible version. v3 lets a producer keep its id and request a higher epoch (KIP-360). v1, v4 and v5
changed no field: v4 and v5 only allow further error codes. v6, two-phase commit, is not stable in Kafka 4.3 and
therefore not defined here.
"""

from holdfast.wire.fields import int16, int32, int64, string
from holdfast.wire.message import Api, request, response

INIT_PRODUCER_ID = Api(22, "InitProducerId", versions=(0, 5), flexible=2)


@request(INIT_PRODUCER_ID)
class InitProducerIdRequest:
    transactional_id: str | None = string(nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)


@response(INIT_PRODUCER_ID)
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
