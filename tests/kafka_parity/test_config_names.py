"""Holdfast knows exactly the config names that a real Apache Kafka describes, with their types and defaults."""

import uuid

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigEntry, ConfigResource  # where its public module takes them from

from holdfast.broker.config.broker import OWN_DEFAULTS, OWN_NAMES, BrokerConfig
from holdfast.broker.config.describe import broker_entries, topic_entries
from tests.client_compat.confluent_client import ConfluentClient
from tests.support.apache_kafka import NODE_ID, ApacheKafka
from tests.support.fixtures import KEEPS_ALL

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def described(broker: ApacheKafka, resource: ConfigResource) -> dict[str, ConfigEntry]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [answer] = admin.describe_configs([resource]).values()
    entries: dict[str, ConfigEntry] = answer.result(timeout=30)
    return entries


def test_the_broker_config_names_are_exactly_kafkas(apache_kafka: ApacheKafka) -> None:
    kafka = described(apache_kafka, ConfigResource(ConfigResource.Type.BROKER, str(NODE_ID)))
    ours = {entry.name: entry for entry in broker_entries(BrokerConfig())}

    assert set(ours) - OWN_NAMES == set(kafka)
    assert {name for name in kafka if ours[name].sensitive} == {name for name in kafka if kafka[name].is_sensitive}


def test_the_brokers_defaults_are_kafkas_except_where_holdfast_says_so(apache_kafka: ApacheKafka) -> None:
    kafka = described(apache_kafka, ConfigResource(ConfigResource.Type.BROKER, str(NODE_ID)))
    ours = {entry.name: entry.value for entry in broker_entries(BrokerConfig())}

    defaults = {name for name, entry in kafka.items() if entry.is_default}
    assert len(defaults) > 300
    differing = {name for name in defaults if kafka[name].value != ours[name]}
    assert differing == defaults & set(OWN_DEFAULTS)


def test_the_topic_configs_are_exactly_kafkas(apache_kafka: ApacheKafka) -> None:
    topic = f"config-names-{uuid.uuid4().hex}"
    ConfluentClient().create_topic(apache_kafka.bootstrap, topic, 1)

    kafka = described(apache_kafka, ConfigResource(ConfigResource.Type.TOPIC, topic))

    ours = {entry.name: entry.value for entry in topic_entries(BrokerConfig.of(KEEPS_ALL), {})}
    assert ours == {name: entry.value for name, entry in kafka.items()}
