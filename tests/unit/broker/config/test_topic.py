"""A topic's configs: its overrides, and the broker's for the rest."""

import pytest

from holdfast.broker.config.broker import BrokerConfig, ConfigError
from holdfast.broker.config.topic import TOPIC_KEYS, TopicConfig, validate_override, validate_overrides

HOUR_MS = 3_600_000


def test_a_topic_without_overrides_uses_the_brokers_configs() -> None:
    broker = BrokerConfig.of(
        {
            "log.segment.bytes": "2000000",
            "log.retention.hours": "1",
            "log.roll.hours": "2",
            "message.max.bytes": "500",
            "log.cleaner.min.cleanable.ratio": "0.25",
            "log.segment.delete.delay.ms": "7",
        }
    )
    topic = TopicConfig.resolve(broker, {})
    assert (topic.segment_bytes, topic.retention_ms, topic.segment_ms) == (2000000, HOUR_MS, 2 * HOUR_MS)
    assert (topic.max_message_bytes, topic.min_cleanable_dirty_ratio, topic.file_delete_delay_ms) == (500, 0.25, 7)


def test_an_override_wins_over_the_brokers_config() -> None:
    broker = BrokerConfig.of({"log.retention.ms": "1000"})
    assert TopicConfig.resolve(broker, {"retention.ms": "5"}).retention_ms == 5


def test_every_topic_config_falls_back_on_an_equal_broker_config() -> None:
    from holdfast.broker.config.broker import BROKER_KEYS

    with_synonym = [key for key in TOPIC_KEYS.values() if key.server_synonym]
    assert len(with_synonym) > 25
    for key in with_synonym:
        server = BROKER_KEYS[str(key.server_synonym)]
        assert server.type == key.type, key.name
        assert server.default in (key.default, None), key.name


@pytest.mark.parametrize(
    ("broker", "overrides", "flush"),
    [
        ({}, {}, ("os", 1000)),
        ({"flush": "always"}, {}, ("always", 1000)),
        ({"flush": "interval"}, {}, ("interval", 1000)),
        ({}, {"flush.messages": "1"}, ("always", 1000)),
        ({}, {"flush.ms": "20"}, ("interval", 20)),
        ({"flush": "always"}, {"flush.messages": "1000"}, ("os", 1000)),
    ],
)
def test_a_topic_flushes_as_it_says_or_as_the_broker_does(
    broker: dict[str, str], overrides: dict[str, str], flush: tuple[str, int]
) -> None:
    topic = TopicConfig.resolve(BrokerConfig.of(broker), overrides)
    assert (topic.flush, topic.flush_interval_ms) == flush


def test_the_log_is_configured_by_what_the_topic_resolves_to() -> None:
    overrides = {
        "segment.bytes": "1048576",
        "segment.ms": "2",
        "retention.ms": "3",
        "retention.bytes": "4",
        "index.interval.bytes": "5",
        "max.message.bytes": "6",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "7",
        "message.timestamp.after.max.ms": "8",
    }
    log = TopicConfig.resolve(BrokerConfig.of({"producer.id.expiration.ms": "9"}), overrides).to_log_config()
    assert (log.segment_bytes, log.segment_ms, log.retention_ms, log.retention_bytes) == (1048576, 2, 3, 4)
    assert (log.index_interval_bytes, log.max_message_bytes, log.message_timestamp_type) == (5, 6, "LogAppendTime")
    assert (log.message_timestamp_before_max_ms, log.message_timestamp_after_max_ms) == (7, 8)
    assert log.producer_id_expiration_ms == 9


@pytest.mark.parametrize("policy", ["compact", ""])
def test_a_log_that_is_not_to_be_deleted_from_keeps_everything(policy: str) -> None:
    overrides = {"cleanup.policy": policy, "retention.ms": "5", "retention.bytes": "5"}
    log = TopicConfig.resolve(BrokerConfig(), overrides).to_log_config()
    assert (log.retention_ms, log.retention_bytes) == (-1, -1)


def test_the_internal_segment_size_may_be_below_the_ordinary_minimum() -> None:
    assert TopicConfig.resolve(BrokerConfig(), {"internal.segment.bytes": "100"}).segment_bytes == 100


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("no.such", "1", "Unknown topic config name: no.such"),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("segment.bytes", "1", "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
        (
            "cleanup.policy",
            "nonsense",
            "Invalid value nonsense for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("cleanup.policy", "delete,", "Configuration 'cleanup.policy' values must not be empty."),
    ],
)
def test_a_bad_override_is_refused_in_the_words_of_kafka(name: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_override(name, value)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("value", ["", "*", "0:1", "0:1,1:2"])
def test_throttled_replicas_are_pairs_or_all(value: str) -> None:
    validate_override("leader.replication.throttled.replicas", value)
    with pytest.raises(ConfigError):
        validate_override("leader.replication.throttled.replicas", value + "x")


def test_a_list_counts_what_is_named_twice_once() -> None:
    assert validate_override("cleanup.policy", " delete , compact,delete") == ("delete", "compact")


def test_overrides_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms \(6\)"):
        validate_overrides(BrokerConfig(), {"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "6"})
    validate_overrides(BrokerConfig(), {"max.compaction.lag.ms": "6", "min.compaction.lag.ms": "6"})


def test_tiered_storage_is_refused() -> None:
    with pytest.raises(ConfigError, match="Tiered Storage"):
        validate_overrides(BrokerConfig(), {"remote.storage.enable": "true"})
    validate_overrides(BrokerConfig(), {"remote.storage.enable": "false"})
