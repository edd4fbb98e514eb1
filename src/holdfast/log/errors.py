"""The errors of logs. The broker maps each to Kafka's error code."""

from __future__ import annotations

from pathlib import Path

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47


class LogError(Exception):
    """The base class."""


class StorageError(LogError):
    """The file system returned an error. Nothing of the operation is stored; it can be retried."""

    def __init__(self, action: str, path: Path, cause: OSError) -> None:
        super().__init__(f"cannot {action} {path}: {cause.strerror or cause}")
        self.errno = cause.errno


class CorruptLog(LogError):
    """Files that cannot be opened as a log until the operator acts."""


class CorruptSegment(CorruptLog):
    """Bytes of a segment that are not the batches that were written (Kafka: CORRUPT_MESSAGE)."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class CompactionFailed(LogError):
    """The process of a compaction has ended or failed. The log is unchanged."""

    def __init__(self, path: Path, reason: str, *, is_worth_a_thread: bool = False) -> None:
        """`is_worth_a_thread`: the same work may succeed in the broker."""
        super().__init__(f"cannot compact {path}: {reason}")
        self.reason = reason
        self.retry_in_thread = is_worth_a_thread


class OffsetOutOfRange(LogError):
    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside of [{start_offset}, {end_offset}]")


class RecordTooLarge(LogError):
    """A batch above max.message.bytes (Kafka: MESSAGE_TOO_LARGE)."""


class RecordListTooLarge(LogError):
    """Batches that do not fit in one segment (Kafka: RECORD_LIST_TOO_LARGE)."""


class ProducerError(LogError):
    """An idempotent producer's batch that must not be stored; `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class DataDirectoryError(LogError):
    """A data directory that cannot be used: locked, of another node, unreadable."""
