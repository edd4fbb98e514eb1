"""Both servers, and the assignors of Apache Kafka's own client."""

from collections.abc import Iterator

import pytest

from tests.support.fixtures import missing
from tests.support.java_assignors import JavaAssignors
from tests.support.kafka_distribution import KafkaUnavailable
from tests.support.quick_brokers import server

__all__ = ["java", "server"]


@pytest.fixture(scope="session")
def java() -> Iterator[JavaAssignors]:
    """One JVM with Kafka's own assignors."""
    try:
        assignors = JavaAssignors()
    except KafkaUnavailable as unavailable:
        reason = f"needs Java: {unavailable}"
    else:
        with assignors:
            yield assignors
        return
    missing(reason)
