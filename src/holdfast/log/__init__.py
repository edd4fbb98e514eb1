"""Append-only partitions on disk, in Kafka's own segment format.

Synchronous code without an event loop or a clock; callers pass `now_ms`. :mod:`holdfast.log.partition_log` documents
which threads may call which methods.
"""

from holdfast.log.compaction import Compacted
from holdfast.log.compaction_process import CompactionSweep
from holdfast.log.config import LogConfig
from holdfast.log.data_directory import DataDirectory
from holdfast.log.errors import (
    CorruptLog,
    CorruptSegment,
    DataDirectoryError,
    LogError,
    OffsetOutOfRange,
    ProducerError,
    RecordListTooLarge,
    RecordTooLarge,
    StorageError,
)
from holdfast.log.partition_log import PartitionLog
from holdfast.log.placing import Appended
from holdfast.log.segment import FileRegion

__all__ = [
    "Appended",
    "Compacted",
    "CompactionSweep",
    "CorruptLog",
    "CorruptSegment",
    "DataDirectory",
    "DataDirectoryError",
    "FileRegion",
    "LogConfig",
    "LogError",
    "OffsetOutOfRange",
    "PartitionLog",
    "ProducerError",
    "RecordListTooLarge",
    "RecordTooLarge",
    "StorageError",
]
