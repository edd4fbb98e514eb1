"""DescribeLogDirs: the data directory, the size of each partition in it, and the free space of its volume.

Sizes are those of the segments, as in Kafka; indexes and snapshots are not counted. Unloaded logs are not loaded; the
sizes of their files are read instead.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from holdfast.broker.api.handlers._encode_in_thread import encode_in_thread
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PreEncoded
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.storage.partition import Partition
from holdfast.broker.storage.topics import Topic
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

logger = logging.getLogger(__name__)


@handler(DESCRIBE_LOG_DIRS)
async def describe_log_dirs(services: Services, request: DescribeLogDirsRequest, context: RequestContext) -> PreEncoded:
    topics = tuple(services.topics)

    def make() -> DescribeLogDirsResponse:
        wanted = _all(topics) if request.topics is None else _wanted(services, request.topics)
        return DescribeLogDirsResponse(results=[_described(services.data.path, wanted)])

    return await encode_in_thread(make, context.api_version)


def _all(topics: Iterable[Topic]) -> Iterator[tuple[Topic, Sequence[Partition]]]:
    return ((topic, topic.partitions) for topic in topics)


def _wanted(services: Services, asked: Iterable[DescribableLogDirTopic]) -> Iterator[tuple[Topic, Sequence[Partition]]]:
    """Without duplicates. As in Kafka, partitions that do not exist are omitted."""
    indexes: dict[str, set[int]] = {}
    for wanted in asked:
        indexes.setdefault(wanted.topic, set()).update(wanted.partitions)
    for name, of_topic in indexes.items():
        topic = services.topics.get(name)
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
    if not log.is_loaded:
        try:
            with os.scandir(log.directory) as entries:
                return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
        except FileNotFoundError:
            pass  # it was loaded and cleaned, or deleted, just now
    return log.size_bytes
