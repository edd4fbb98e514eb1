"""ListPartitionReassignments: the partitions whose replicas are being moved (KIP-455). Flexible from the start."""

from holdfast.wire.fields import array, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

LIST_PARTITION_REASSIGNMENTS = Api(46, "ListPartitionReassignments", versions=(0, 0), flexible=0)


@struct_type
class ListPartitionReassignmentsTopics:
    name: str = string()
    partition_indexes: list[int] = array(int32())


@request(LIST_PARTITION_REASSIGNMENTS)
class ListPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable=0, default=None
    )


@struct_type
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())


@struct_type
class OngoingTopicReassignment:
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@response(LIST_PARTITION_REASSIGNMENTS)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
