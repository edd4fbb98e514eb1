"""ApiVersions of both brokers side by side: what one has and the other has not is in docs/differences.md."""

from __future__ import annotations

import re
import zipfile

import pytest

from holdfast.wire.apis.api_versions import ApiVersionsRequest
from tests.broker.wire_client import WireClient
from tests.support.apache_kafka import ApacheKafka
from tests.support.differences_page import difference, missing_apis, other_versions
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import kafka_distribution

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

Versions = dict[int, tuple[int, int]]


def advertised(server: ApacheKafka | HoldfastBroker) -> Versions:
    with WireClient(server.address) as client:
        response = client.ask(ApiVersionsRequest("holdfast-tests", "1"), 4)
    assert response.error_code == 0
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}


@pytest.fixture(scope="module")
def kafkas(apache_kafka: ApacheKafka) -> Versions:
    return advertised(apache_kafka)


@pytest.fixture(scope="module")
def ours(holdfast: HoldfastBroker) -> Versions:
    return advertised(holdfast)


@pytest.fixture(scope="module")
def names(apache_kafka: ApacheKafka) -> dict[int, str]:  # without a Kafka there is no jar
    """Kafka's own names of its keys, from the definitions that its client carries."""
    (jar,) = kafka_distribution().libs.glob("kafka-clients-*.jar")
    found: dict[int, str] = {}
    with zipfile.ZipFile(jar) as content:
        for path in content.namelist():
            name = re.fullmatch(r"common/message/(\w+)Request\.json", path)
            key = name and re.search(r'"apiKey": (\d+)', content.read(path).decode())
            if name and key:
                found[int(key[1])] = name[1]
    return found


def test_every_api_that_is_missing_is_listed(kafkas: Versions, ours: Versions, names: dict[int, str]) -> None:
    missing = {key: names[key] for key in kafkas if key not in ours}

    assert missing_apis() == missing


def test_versions_that_differ_are_listed(kafkas: Versions, ours: Versions, names: dict[int, str]) -> None:
    def shown(versions: tuple[int, int]) -> str:
        return "–".join(map(str, versions))  # as the page writes it

    both = kafkas.keys() & ours.keys()
    assert len(both) > 30
    different = {key: (names[key], shown(kafkas[key]), shown(ours[key])) for key in both if kafkas[key] != ours[key]}

    assert other_versions() == different


def test_what_kafka_does_not_have_is_listed(kafkas: Versions, ours: Versions) -> None:
    assert sorted(ours.keys() - kafkas.keys()) == [10000, 10001, 10002]
    assert "10000 to 10002" in difference(35)
