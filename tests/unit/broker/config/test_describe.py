"""Configs as DescribeConfigs shows them; the expected answers are those of Apache Kafka 4.3."""

from pathlib import Path

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.config.describe import ConfigEntry, ConfigSource, broker_entries, topic_entries

Shown = tuple[str | None, ConfigSource, list[tuple[str, str | None, int]]]


def of_broker(config: BrokerConfig) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in broker_entries(config)}


def of_topic(config: BrokerConfig, overrides: dict[str, str]) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in topic_entries(config, overrides)}


def shown(entry: ConfigEntry) -> Shown:
    return entry.value, entry.source, [(s.name, s.value, int(s.source)) for s in entry.synonyms]


def test_a_default_is_its_own_only_synonym() -> None:
    entries = of_broker(BrokerConfig())
    assert shown(entries["message.max.bytes"]) == (
        "1048588",
        ConfigSource.DEFAULT,
        [("message.max.bytes", "1048588", 5)],
    )


def test_what_was_set_comes_before_the_default_it_hides() -> None:
    entries = of_broker(BrokerConfig.of({"listeners": "PLAINTEXT://h:1"}))
    assert shown(entries["listeners"]) == (
        "PLAINTEXT://h:1",
        ConfigSource.STATIC_BROKER,
        [("listeners", "PLAINTEXT://h:1", 4), ("listeners", "PLAINTEXT://127.0.0.1:9092", 5)],
    )


def test_an_unset_config_has_no_value_and_no_synonym() -> None:
    assert shown(of_broker(BrokerConfig())["log.retention.ms"]) == (None, ConfigSource.DEFAULT, [])


def test_names_for_one_thing_are_each_others_synonyms() -> None:
    entries = of_broker(BrokerConfig.of({"log.retention.ms": "5"}))
    assert shown(entries["log.retention.ms"]) == (
        "5",
        ConfigSource.STATIC_BROKER,
        [("log.retention.ms", "5", 4), ("log.retention.hours", "168", 5)],
    )


def test_a_password_is_never_shown() -> None:
    entry = of_broker(BrokerConfig.of({"ssl.keystore.password": "hunter2"}))["ssl.keystore.password"]
    assert entry.sensitive
    assert shown(entry) == (None, ConfigSource.STATIC_BROKER, [("ssl.keystore.password", None, 4)])


def test_both_names_of_the_node_id_are_shown() -> None:
    entries = of_broker(BrokerConfig.of({"node.id": "7"}))
    assert (entries["node.id"].value, entries["broker.id"].value) == ("7", "7")


def test_what_is_read_at_the_start_is_read_only_and_internal_ones_are_left_out() -> None:
    entries = of_broker(BrokerConfig())
    assert all(entries[name].read_only for name in ("node.id", "listeners", "num.partitions", "ssl.keystore.location"))
    assert not any(entries[name].read_only for name in ("log.retention.ms", "message.max.bytes", "max.connections"))
    assert "unstable.api.versions.enable" not in entries


def test_a_data_directory_with_a_comma_is_shown_as_it_is() -> None:
    config = BrokerConfig().with_data_dir(Path("/a,,b"))
    assert of_broker(config)["log.dirs"].value == "/a,,b"


def test_values_are_printed_as_kafka_prints_them() -> None:
    config = BrokerConfig.of({"auto.create.topics.enable": "TRUE", "num.partitions": "+3"})
    entries = of_broker(config)
    assert (entries["auto.create.topics.enable"].value, entries["num.partitions"].value) == ("true", "3")
    assert entries["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
    assert of_topic(config, {"min.cleanable.dirty.ratio": "0.30"})["min.cleanable.dirty.ratio"].value == "0.3"


def test_a_topic_shows_its_default_and_the_brokers_name_for_it() -> None:
    entries = of_topic(BrokerConfig(), {})
    assert shown(entries["cleanup.policy"]) == ("delete", ConfigSource.DEFAULT, [("log.cleanup.policy", "delete", 5)])
    assert shown(entries["retention.ms"]) == ("604800000", ConfigSource.DEFAULT, [])


def test_a_topic_shows_its_override_before_what_it_hides() -> None:
    config = BrokerConfig.of({"log.cleanup.policy": "compact"})
    assert shown(of_topic(config, {"cleanup.policy": "delete"})["cleanup.policy"]) == (
        "delete",
        ConfigSource.TOPIC,
        [("cleanup.policy", "delete", 1), ("log.cleanup.policy", "compact", 4), ("log.cleanup.policy", "delete", 5)],
    )


def test_a_topic_shows_a_broker_config_that_was_set_in_another_unit() -> None:
    entries = of_topic(BrokerConfig.of({"log.retention.hours": "1"}), {})
    assert shown(entries["retention.ms"]) == ("3600000", ConfigSource.DEFAULT, [])


def test_a_topic_shows_how_the_broker_flushes() -> None:
    assert of_topic(BrokerConfig.of({"flush": "always"}), {})["flush.messages"].value == "1"
    assert of_topic(BrokerConfig.of({"log.flush.interval.ms": "5"}), {})["flush.ms"].value == "5"


def test_an_internal_topic_config_is_shown_once_it_is_set() -> None:
    assert "internal.segment.bytes" not in of_topic(BrokerConfig(), {})
    assert of_topic(BrokerConfig(), {"internal.segment.bytes": "100"})["internal.segment.bytes"].value == "100"


def test_every_topic_config_can_be_written_and_says_what_it_does() -> None:
    for entry in topic_entries(BrokerConfig(), {}):
        assert not entry.read_only
        assert entry.documentation.endswith("."), entry.name
