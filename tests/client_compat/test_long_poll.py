"""A reader that waits gets a record at once."""

import time

from tests.client_compat.client import Client, Record, read_from, values
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.servers import ProxiedServer
from tests.support.eventually import eventually
from tests.support.tcp_proxy import FETCH

FETCH_WAIT_MS = 20_000
"""Some clients wait no longer than 30 s for an answer."""


def test_a_long_poll_returns_a_record_long_before_its_wait_is_over(
    proxied_server: ProxiedServer, client: Client, topic: str
) -> None:
    proxy, producer = proxied_server.proxy, ConfluentClient()
    producer.produce(proxied_server.bootstrap, topic, [Record(value=b"first")])
    opened = time.monotonic()
    with client.reader(proxied_server.bootstrap, topic, fetch_wait_ms=FETCH_WAIT_MS) as reader:
        assert values(read_from(reader, 1)) == [b"first"]

        # The control: nothing new, so nothing is read, and the broker holds the reader's request meanwhile.
        def idle_poll_meets_a_waiting_fetch() -> bool:
            assert reader.poll(0.1) == []
            return proxy.has_unanswered(FETCH, since=opened)

        eventually(idle_poll_meets_a_waiting_fetch, "the broker holds a fetch")
        fetches_before = proxy.requests_seen(FETCH)
        assert reader.poll(0.5) == []
        assert proxy.requests_seen(FETCH) == fetches_before

        producer.produce(proxied_server.bootstrap, topic, [Record(value=b"second")])
        produced = time.monotonic()
        assert values(read_from(reader, 1)) == [b"second"]
        assert time.monotonic() - produced < FETCH_WAIT_MS / 1000 / 2
