"""A producer that waits for no answer sends, and goes: what it sent before its end is stored."""

from holdfast.wire.headers import encode_request
from tests.broker.wire_client import WireClient, batch, produce_request
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.servers import Server
from tests.support.eventually import eventually

REQUESTS = 400
"""More than a broker serves in one turn."""


def test_what_was_sent_before_the_connection_was_closed_is_stored(server: Server, topic: str) -> None:
    confluent = ConfluentClient()
    confluent.create_topic(server.bootstrap, topic, 1)
    produce = produce_request(topic, batch(b"sent"), acks=0)
    host, _, port = server.bootstrap.partition(":")

    with WireClient((host, int(port))) as client:
        client.send_bytes(b"".join(encode_request(produce, 9, number, "gone") for number in range(REQUESTS)))

    eventually(lambda: confluent.watermarks(server.bootstrap, topic) == (0, REQUESTS), "all of it is stored")
