"""DeleteRecords: advances the log start offset of partitions and deletes the records before it. Offset -1 means all of
them.

v2 is the first flexible version. v1 changed no field.
"""

from holdfast.wire.fields import array, int16, int32, int64, string
from holdfast.wire.message import Api, request, response, struct_type

DELETE_RECORDS = Api(21, "DeleteRecords", versions=(0, 2), flexible=2)


@struct_type
class DeleteRecordsPartition:
    partition_index: int = int32()
    offset: int = int64()


@struct_type
class DeleteRecordsTopic:
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@request(DELETE_RECORDS)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct_type
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@struct_type
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@response(DELETE_RECORDS)
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
