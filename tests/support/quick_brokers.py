"""Holdfast and Apache Kafka with groups that form quickly; a pytest plugin module.

A conftest that wants its tests to run on both imports `server` and `disposable_server` from here.
"""

from collections.abc import Iterator

import pytest

from tests.client_compat.servers import Server
from tests.support.apache_kafka import ApacheKafka
from tests.support.fixtures import KEEPS_ALL
from tests.support.holdfast_broker import HoldfastBroker

QUICK = KEEPS_ALL | {"group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "500"}
"""Groups that form at once, members that may be missed after a second, and no record that goes by its age."""

BOTH_SERVERS = ["holdfast", pytest.param("kafka", marks=[pytest.mark.real, pytest.mark.timeout(300)])]


@pytest.fixture(scope="session")
def quick_holdfast() -> Iterator[HoldfastBroker]:
    """One broker for the whole run (one per xdist worker): leave what is not yours alone."""
    with HoldfastBroker(QUICK) as broker:
        yield broker


@pytest.fixture(scope="session")
def quick_kafka(apache_kafka_distribution: object) -> Iterator[ApacheKafka]:
    with ApacheKafka(QUICK) as broker:
        yield broker


@pytest.fixture(params=BOTH_SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    """The broker that the whole run shares."""
    found: Server = request.getfixturevalue(f"quick_{request.param}")
    return found


def own_broker(request: pytest.FixtureRequest, settings: dict[str, str] | None = None) -> HoldfastBroker | ApacheKafka:
    """A broker of the kind that a fixture with BOTH_SERVERS as its parameters was asked for; not started."""
    if request.param == "holdfast":
        return HoldfastBroker(QUICK | (settings or {}))
    request.getfixturevalue("apache_kafka_distribution")  # skips, or fails in CI, where there is no Kafka
    return ApacheKafka(QUICK | (settings or {}))


@pytest.fixture(params=BOTH_SERVERS)
def disposable_server(request: pytest.FixtureRequest) -> Iterator[HoldfastBroker | ApacheKafka]:
    """A broker for one test alone, which may end it."""
    with own_broker(request) as broker:
        yield broker
