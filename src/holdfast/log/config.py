"""A log's settings: Kafka's topic configs that have an effect here, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1024**3
    segment_ms: int = 7 * _DAY_MS
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = UNLIMITED
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 1024**2
    max_message_bytes: int = 1024**2 + 12
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_after_max_ms: int = _HOUR_MS
    # Whether "compact" is in cleanup.policy, and the configs of compaction.
    compacts: bool = False
    delete_retention_ms: int = _DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    # A broker config in Kafka (log.cleaner.dedupe.buffer.size): memory for the keys of one pass.
    compaction_memory_bytes: int = 128 * 1024**2
    # A broker config in Kafka (producer.id.expiration.ms), passed to each log.
    producer_id_expiration_ms: int = _DAY_MS
