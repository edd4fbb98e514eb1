"""DescribeLogDirs: the data directory, what each partition's segments take of it, and how much room its volume has.

Sizes are those of the segments, as in Kafka; indexes and snapshots are not counted. A log at rest stays at rest: its
files are asked for their sizes.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.broker.dispatch import Encoded, RequestContext, handles
from holdfast.broker.handlers._in_worker import in_worker
from holdfast.broker.partition import Partition
from holdfast.broker.topics import Topic
from holdfast.log import LogError, PartitionLog
from holdfast.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)


@handles(DESCRIBE_LOG_DIRS)
async def describe_log_dirs(broker: Broker, request: DescribeLogDirsRequest, context: RequestContext) -> Encoded:
    topics = tuple(broker.topics)

    def make() -> DescribeLogDirsResponse:
        wanted = _all(topics) if request.topics is None else _wanted(broker, request.topics)
        return DescribeLogDirsResponse(results=[_described(broker.data.path, wanted)])

    return await in_worker(make, context.api_version)


def _all(topics: Iterable[Topic]) -> Iterator[tuple[Topic, Sequence[Partition]]]:
    return ((topic, topic.partitions) for topic in topics)


def _wanted(broker: Broker, asked: Iterable[DescribableLogDirTopic]) -> Iterator[tuple[Topic, Sequence[Partition]]]:
    """Each partition once, however often it is named; of those that do not exist Kafka says nothing."""
    indexes: dict[str, set[int]] = {}
    for wanted in asked:
        indexes.setdefault(wanted.topic, set()).update(wanted.partitions)
    for name, of_topic in indexes.items():
        topic = broker.topics.get(name)
        if topic is not None:
            found = (topic.partition(index) for index in sorted(of_topic))
            yield topic, [partition for partition in found if partition is not None]


def _described(path: Path, wanted: Iterable[tuple[Topic, Sequence[Partition]]]) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=str(path.absolute()))
    try:
        usage = shutil.disk_usage(path)
        for topic, partitions in wanted:
            described = [_partition(one) for one in partitions if not one.deleted]
            if described:
                result.topics.append(DescribeLogDirsTopic(topic.name, described))
    except (LogError, OSError) as error:
        logger.error("cannot describe %s: %s", path, error)
        return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, result.log_dir)
    result.total_bytes, result.usable_bytes = usage.total, usage.free
    return result


def _partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(partition.index, _stored_bytes(partition.log))


def _stored_bytes(log: PartitionLog) -> int:
    if log.is_at_rest:
        try:
            with os.scandir(log.directory) as entries:
                return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
        except FileNotFoundError:
            pass  # it was woken and cleaned, or deleted, just now
    return log.size_bytes
