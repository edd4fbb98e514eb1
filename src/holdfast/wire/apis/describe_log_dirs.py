"""DescribeLogDirs: the directories of a broker's logs, and the size of each partition (KIP-113).

Kafka 4 removed v0. v2 is the first flexible version, v3 adds an error for the whole request, v4 the size and free space
of the volume (KIP-827), v5 whether the directory is cordoned, so that it gets no new partitions (KIP-1066).
"""

from holdfast.wire.fields import array, boolean, int16, int32, int64, string
from holdfast.wire.message import Api, request, response, struct_type

DESCRIBE_LOG_DIRS = Api(35, "DescribeLogDirs", versions=(1, 5), flexible=2)


@struct_type
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = array(int32())


@request(DESCRIBE_LOG_DIRS)
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=0)


@struct_type
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct_type
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct_type
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1, ignorable=True)
    usable_bytes: int = int64(since=4, default=-1, ignorable=True)
    is_cordoned: bool = boolean(since=5, ignorable=True)


@response(DESCRIBE_LOG_DIRS)
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
