"""OffsetDelete: deletes a group's offsets for partitions that it no longer subscribes to.

One version, not flexible. Unlike in all other APIs, the error code is before the throttle time.
"""

from holdfast.wire.fields import array, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

OFFSET_DELETE = Api(47, "OffsetDelete", versions=(0, 0))


@struct_type
class OffsetDeleteRequestPartition:
    partition_index: int = int32()


@struct_type
class OffsetDeleteRequestTopic:
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@request(OFFSET_DELETE)
class OffsetDeleteRequest:
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@struct_type
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@struct_type
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@response(OFFSET_DELETE)
class OffsetDeleteResponse:
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
