"""Consumers with group.protocol=consumer (KIP-848): Holdfast assigns nothing by itself, and they are informed at
once."""

import pytest

from tests.groups.members import CONFLUENT, JAVA, StartMember, await_shared
from tests.groups.topics import PARTITIONS, make_topic
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

SOON_S = 45
"""Enough to start a JVM on a busy machine; less than the minute for which clients try on their own."""
ADVICE = "set group.protocol=classic"


def test_librdkafka_stops_with_an_error(
    quick_holdfast: HoldfastBroker, start_member: StartMember, group: str, topic_name: str
) -> None:
    make_topic(quick_holdfast, topic_name)

    member = start_member(CONFLUENT, quick_holdfast.bootstrap, group_protocol="consumer")

    eventually(lambda: member.exit_code, "the consumer gives up", within_s=SOON_S)
    assert "API version not supported: ConsumerGroupHeartbeat" in member.output()
    assert_logged_once(quick_holdfast, group)
    # The control: the same consumer with the classic protocol is served.
    await_shared([start_member(CONFLUENT, quick_holdfast.bootstrap, group_protocol="classic")], PARTITIONS)


@pytest.mark.real
@pytest.mark.usefixtures("apache_kafka_distribution")
def test_java_stops_with_an_error(
    quick_holdfast: HoldfastBroker, start_member: StartMember, group: str, topic_name: str
) -> None:
    make_topic(quick_holdfast, topic_name)

    member = start_member(JAVA, quick_holdfast.bootstrap, group_protocol="consumer")

    eventually(lambda: member.exit_code is not None, "the consumer gives up", within_s=SOON_S)
    assert "Set group.protocol=classic on the consumer configs" in member.output()
    assert_logged_once(quick_holdfast, group)


def assert_logged_once(holdfast: HoldfastBroker, group: str) -> None:
    (line,) = (line for line in holdfast.log_text().splitlines() if group in line)
    assert ADVICE in line
