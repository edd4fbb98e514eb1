"""ReleaseGroup (Holdfast's own, only on a gateway): gives a group back to Kafka's own coordinator.

The gateway writes the group's committed offsets to Kafka and then stops coordinating the group.
"""

from holdfast.wire.fields import int16, int32, string
from holdfast.wire.message import Api, request, response

RELEASE_GROUP = Api(10_003, "ReleaseGroup", versions=(0, 0), flexible=0)


@request(RELEASE_GROUP)
class ReleaseGroupRequest:
    group_id: str = string()


@response(RELEASE_GROUP)
class ReleaseGroupResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    partition_count: int = int32()
    """The number of partitions whose offset Kafka has now."""
