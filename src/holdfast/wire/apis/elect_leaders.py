"""ElectLeaders: elect the preferred replica of partitions, or any that is alive (KIP-183).

v1 adds the election type and an error for the whole request (KIP-460); v2 is the first flexible version.
"""

from holdfast.wire.fields import array, int8, int16, int32, string
from holdfast.wire.message import Api, request, response, struct_type

ELECT_LEADERS = Api(43, "ElectLeaders", versions=(0, 2), flexible=2)


@struct_type
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array(int32())


@request(ELECT_LEADERS)
class ElectLeadersRequest:
    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=0)
    timeout_ms: int = int32(default=60000)


@struct_type
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@struct_type
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@response(ELECT_LEADERS)
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
