"""A reply is lost on the way: the client sends again, and an idempotent producer's records are stored once."""

import pytest

from tests.client_compat.client import Client, Record, Sending, read, values
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.go_client import KAFKA_GO
from tests.client_compat.servers import ProxiedServer
from tests.support.tcp_proxy import PRODUCE

RECORDS = [Record(key=b"k", value=b"once-%d" % number) for number in range(10)]
EXPECTED = [record.value for record in RECORDS]


def test_the_records_of_an_idempotent_producer_are_stored_once(
    proxied_server: ProxiedServer, client: Client, topic: str
) -> None:
    if client is KAFKA_GO:
        pytest.skip("kafka-go has no idempotent producer")
    stored = produce_while_a_reply_is_lost(proxied_server, client, topic, idempotent=True)

    assert stored == EXPECTED


def test_the_records_of_another_producer_are_stored_again(
    proxied_server: ProxiedServer, client: Client, topic: str
) -> None:
    """The control: without idempotence the same loss does store records twice."""
    stored = produce_while_a_reply_is_lost(proxied_server, client, topic, idempotent=False)

    assert len(stored) > len(EXPECTED)
    assert set(stored) == set(EXPECTED)


def produce_while_a_reply_is_lost(
    server: ProxiedServer, client: Client, topic: str, *, idempotent: bool
) -> list[bytes | None]:
    # A Kafka that has just heard of the topic may refuse the first records: that reply would be the one that is lost.
    ConfluentClient().create_topic(server.bootstrap, topic, 1)
    swallowed = server.proxy.swallow_next_reply(PRODUCE)

    client.produce(server.bootstrap, topic, RECORDS, sending=Sending(acks="all", idempotent=idempotent))

    assert swallowed.is_set()
    _, end = ConfluentClient().watermarks(server.bootstrap, topic)
    return values(read(client, server.bootstrap, topic, end))
