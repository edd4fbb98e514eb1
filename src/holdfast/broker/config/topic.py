"""The configuration of a topic: its own overrides, and the broker's configs for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from holdfast.broker.config.broker import BrokerConfig, Flush
from holdfast.broker.config.schema import ConfigError, ConfigKey, ConfigType, Value, read_keys
from holdfast.log.config import UNLIMITED, LogConfig

TOPIC_KEYS: Final[Mapping[str, ConfigKey]] = read_keys("topic_configs.txt")

_NEVER: Final = 2**63 - 1
_HOUR_MS: Final = 3_600_000


def _setting(name: str) -> Any:  # Any: the annotation of the field says the type
    return field(metadata={"name": name})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configs of one topic that have an effect."""

    cleanup_policy: tuple[str, ...] = _setting("cleanup.policy")
    compression_type: str = _setting("compression.type")
    delete_retention_ms: int = _setting("delete.retention.ms")
    file_delete_delay_ms: int = _setting("file.delete.delay.ms")
    index_interval_bytes: int = _setting("index.interval.bytes")
    max_compaction_lag_ms: int = _setting("max.compaction.lag.ms")
    max_message_bytes: int = _setting("max.message.bytes")
    message_timestamp_after_max_ms: int = _setting("message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = _setting("message.timestamp.before.max.ms")
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = _setting("message.timestamp.type")
    min_cleanable_dirty_ratio: float = _setting("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _setting("min.compaction.lag.ms")
    retention_bytes: int = _setting("retention.bytes")
    retention_ms: int = _setting("retention.ms")
    segment_bytes: int = _setting("segment.bytes")
    segment_index_bytes: int = _setting("segment.index.bytes")
    segment_ms: int = _setting("segment.ms")
    #: Broker configs that apply to every log.
    producer_id_expiration_ms: int
    log_cleaner_dedupe_buffer_size: int
    flush: Flush
    #: How often `flush = interval` flushes.
    flush_interval_ms: int

    @classmethod
    def resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        """The overrides must be valid: see `validate_overrides`."""
        values: dict[str, Any] = {
            setting.name: value_of(broker, overrides, setting.metadata["name"])
            for setting in fields(cls)
            if "name" in setting.metadata
        }
        smaller = overrides.get("internal.segment.bytes")
        if smaller is not None:
            values["segment_bytes"] = TOPIC_KEYS["internal.segment.bytes"].parse(smaller)
        flush, interval_ms = _flush(broker, overrides)
        return cls(
            **values,
            producer_id_expiration_ms=broker.producer_id_expiration_ms,
            log_cleaner_dedupe_buffer_size=broker.log_cleaner_dedupe_buffer_size,
            flush=flush,
            flush_interval_ms=interval_ms,
        )

    def to_log_config(self) -> LogConfig:
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self.segment_ms,
            # Without `delete` in the policy, neither age nor log size removes records.
            retention_ms=self.retention_ms if self.deletes else UNLIMITED,
            retention_bytes=max(self.retention_bytes, UNLIMITED) if self.deletes else UNLIMITED,
            index_interval_bytes=self.index_interval_bytes,
            segment_index_bytes=self.segment_index_bytes,
            max_message_bytes=self.max_message_bytes,
            message_timestamp_type=self.message_timestamp_type,
            message_timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            message_timestamp_after_max_ms=self.message_timestamp_after_max_ms,
            compacts=self.compacts,
            delete_retention_ms=self.delete_retention_ms,
            min_cleanable_dirty_ratio=self.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=self.min_compaction_lag_ms,
            max_compaction_lag_ms=self.max_compaction_lag_ms,
            compaction_memory_bytes=self.log_cleaner_dedupe_buffer_size,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
        )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy


def segment_bytes_config(size: int) -> str:
    """The name of the topic config for this segment size. The ordinary config has a minimum."""
    try:
        validate_override("segment.bytes", str(size))
    except ConfigError:
        return "internal.segment.bytes"
    return "segment.bytes"


def validate_override(name: str, value: str) -> Value:
    """The typed value; `ConfigError` (Kafka: INVALID_CONFIG) for an unknown name or an invalid value."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    return key.parse(value)


def validate_overrides(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """All overrides of a topic, one by one and against each other."""
    for name, value in overrides.items():
        validate_override(name, value)
    if value_of(broker, overrides, "remote.storage.enable"):
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    lag_ms, longest_ms = (value_of(broker, overrides, f"{bound}.compaction.lag.ms") for bound in ("min", "max"))
    if lag_ms > longest_ms:
        raise ConfigError(f"min.compaction.lag.ms ({lag_ms}) is more than max.compaction.lag.ms ({longest_ms})")


def value_of(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> Any:
    """The typed value of one topic config; None if it is unset. Any: the type depends on the name."""
    text = text_of(broker, overrides, name)
    return None if text is None else TOPIC_KEYS[name].parse(text)


def text_of(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> str | None:
    """The text of a topic config."""
    if name in overrides:
        return overrides[name]
    combined = _COMBINED.get(name)
    if combined is not None:
        return str(combined(broker))
    key = TOPIC_KEYS[name]
    if key.server_synonym is None:
        return key.default
    return broker.text_of(key.server_synonym)


def is_list(name: str) -> bool:
    return name in TOPIC_KEYS and TOPIC_KEYS[name].type is ConfigType.LIST


def _flush(broker: BrokerConfig, overrides: Mapping[str, str]) -> tuple[Flush, int]:
    if "flush.messages" not in overrides and "flush.ms" not in overrides:
        return broker.flush, broker.log_flush_interval_ms
    messages: int = value_of(broker, overrides, "flush.messages")
    interval_ms: int = value_of(broker, overrides, "flush.ms")
    if messages == 1 or interval_ms == 0:
        return "always", broker.log_flush_interval_ms
    return ("os", broker.log_flush_interval_ms) if interval_ms == _NEVER else ("interval", interval_ms)


def _jitter_ms(broker: BrokerConfig) -> int:
    jitter_ms, hours = broker.text_of("log.roll.jitter.ms"), broker.text_of("log.roll.jitter.hours")
    return int(jitter_ms) if jitter_ms is not None else int(hours or 0) * _HOUR_MS


#: Topic configs whose default is made from several broker configs.
_COMBINED: Final[Mapping[str, Callable[[BrokerConfig], int]]] = {
    "retention.ms": lambda broker: broker.log_retention_ms,
    "segment.ms": lambda broker: broker.log_roll_ms,
    "segment.jitter.ms": _jitter_ms,
    "flush.ms": lambda broker: broker.log_flush_interval_ms if broker.flush == "interval" else _NEVER,
    "flush.messages": lambda broker: 1 if broker.flush == "always" else broker.log_flush_interval_messages,
}
