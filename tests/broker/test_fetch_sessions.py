"""Fetch sessions (KIP-227) on the wire: Holdfast grants none, says so, and serves any client that names all partitions.

Apache Kafka is the control: there the same request does get a session, and can go on in it.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest

from holdfast.wire.apis.fetch import FetchRequest, FetchResponse
from tests.broker.wire_client import WireClient, batch, decoded, fetch_request
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import server

__all__ = ["server"]

FETCH_V12 = 12
FETCH_SESSION_ID_NOT_FOUND = 70
NO_SUCH_SESSION = 77
NO_SESSION, NEW_SESSION = -1, 0


def filled_topic(client: WireClient) -> str:
    topic = f"t-{uuid.uuid4().hex[:12]}"
    client.create_topic(topic)
    # A Kafka that has just made a topic may not lead it yet.
    eventually(lambda: client.produce(topic, batch(b"one", b"two")).error_code == 0, "the topic takes records")
    return topic


def in_session(topic: str, session_id: int, epoch: int, offset: int = 0) -> FetchRequest:
    return dataclasses.replace(fetch_request(topic, offset), session_id=session_id, session_epoch=epoch)


def values(response: FetchResponse) -> list[bytes | None]:
    assert response.error_code == 0
    ((answer,),) = (topic.partitions for topic in response.responses)
    assert answer.error_code == 0
    records: Any = answer.records  # a view of what came in
    return [record.value for record in decoded(bytes(records))]


def test_a_client_that_asks_for_a_fetch_session_gets_session_id_0(server: HoldfastBroker | ApacheKafka) -> None:
    with WireClient(server.address) as client:
        topic = filled_topic(client)

        first = client.ask(in_session(topic, 0, NEW_SESSION), FETCH_V12)

        assert values(first) == [b"one", b"two"]
        assert (first.session_id != 0) == isinstance(server, ApacheKafka)


def test_without_a_session_every_fetch_is_a_whole_one(server: HoldfastBroker | ApacheKafka) -> None:
    with WireClient(server.address) as client:
        topic = filled_topic(client)

        for _ in range(2):
            answer = client.ask(in_session(topic, 0, NO_SESSION), FETCH_V12)
            assert (answer.session_id, values(answer)) == (0, [b"one", b"two"])
        # Nothing new is an answer that names the partition, too: in a session it would be left out.
        assert values(client.ask(in_session(topic, 0, NO_SESSION, offset=2), FETCH_V12)) == []


@pytest.mark.parametrize(("session_id", "epoch"), [(NO_SUCH_SESSION, 1), (0, 1), (NO_SUCH_SESSION, 2**31 - 1), (0, -2)])
def test_a_fetch_in_an_unknown_session_is_refused(
    server: HoldfastBroker | ApacheKafka, session_id: int, epoch: int
) -> None:
    with WireClient(server.address) as client:
        topic = filled_topic(client)

        refused = client.ask(in_session(topic, session_id, epoch), FETCH_V12)

        assert (refused.error_code, refused.session_id, refused.responses) == (FETCH_SESSION_ID_NOT_FOUND, 0, [])


@pytest.mark.parametrize("epoch", [NEW_SESSION, NO_SESSION])
def test_a_fetch_that_ends_or_replaces_a_session_is_served(server: HoldfastBroker | ApacheKafka, epoch: int) -> None:
    with WireClient(server.address) as client:
        topic = filled_topic(client)

        assert values(client.ask(in_session(topic, NO_SUCH_SESSION, epoch), FETCH_V12)) == [b"one", b"two"]
