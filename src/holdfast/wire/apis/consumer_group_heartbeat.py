"""ConsumerGroupHeartbeat: the request of the newer group protocol (KIP-848), in which the broker assigns partitions.

Declared so that it can be rejected by name. v1 adds the regular expression; both versions are flexible.
"""

from holdfast.wire.fields import array, int16, int32, string, struct, uuid
from holdfast.wire.message import Api, request, response, struct_type

CONSUMER_GROUP_HEARTBEAT = Api(68, "ConsumerGroupHeartbeat", versions=(0, 1), flexible=0)


@struct_type
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


@struct_type
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@request(CONSUMER_GROUP_HEARTBEAT)
class ConsumerGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string(), nullable=0, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable=1, default=None)
    server_assignor: str | None = string(nullable=0, default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=0, default=None)


@response(CONSUMER_GROUP_HEARTBEAT)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, ignorable=True, default=None)
    member_id: str | None = string(nullable=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable=0)
