"""Fixtures for tests that need a real part beside Holdfast; a pytest plugin module."""

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_distribution import KafkaDistribution, KafkaUnavailable, kafka_distribution

KEEPS_ALL = {"log.retention.ms": "-1"}
"""Tests write records of years ago. Kafka looks for such 30 s after its start, and takes them away under the test."""


@pytest.fixture(scope="session")
def apache_kafka_distribution() -> KafkaDistribution:
    """Apache Kafka's jars, for a test that starts brokers of its own."""
    try:
        return kafka_distribution()
    except KafkaUnavailable as unavailable:
        reason = f"needs Apache Kafka: {unavailable}"
    missing(reason)


@pytest.fixture(scope="session")
def apache_kafka(apache_kafka_distribution: KafkaDistribution) -> Iterator[ApacheKafka]:
    """One broker for the whole run (one per xdist worker): make topics of your own and leave the rest alone."""
    with ApacheKafka(KEEPS_ALL) as broker:
        yield broker


def missing(reason: str) -> NoReturn:
    """In CI a missing real part is a failure; elsewhere the test that needs it is skipped and says why."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
