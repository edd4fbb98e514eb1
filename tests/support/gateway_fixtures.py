"""A cluster of Apache Kafka with a gateway in front of it; a pytest plugin module."""

from collections.abc import Iterator

import pytest

from tests.support.fixtures import KEEPS_ALL
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_distribution import KafkaDistribution


@pytest.fixture(scope="session")
def kafka_cluster(apache_kafka_distribution: KafkaDistribution) -> Iterator[KafkaCluster]:
    """Three brokers for the whole run (three per xdist worker): who kills one starts it again."""
    with KafkaCluster(properties=KEEPS_ALL) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def one_kafka(apache_kafka_distribution: KafkaDistribution) -> Iterator[KafkaCluster]:
    """A cluster of one broker for the whole run, which starts sooner."""
    with KafkaCluster(1, KEEPS_ALL) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def gateway(kafka_cluster: KafkaCluster) -> Iterator[GatewayProcess]:
    """A gateway in front of three brokers. Only one at a time can have their ports for the gateway."""
    with GatewayProcess(kafka_cluster) as process:
        yield process
