"""CreatePartitions: adds partitions to topics; the count is the new total.

v2 is the first flexible version; v3 may reject the request because of a quota (KIP-599). v1 changed no field.
"""

from holdfast.wire.fields import array, boolean, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

CREATE_PARTITIONS = Api(37, "CreatePartitions", versions=(0, 3), flexible=2)


@struct_type
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(int32())


@struct_type
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable=0)


@request(CREATE_PARTITIONS)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct_type
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


@response(CREATE_PARTITIONS)
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
