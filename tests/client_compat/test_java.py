"""What Kafka's own Java clients ask for and the others do not."""

from functools import partial

import pytest

from tests.client_compat.client import Record, read_from, values
from tests.client_compat.java_client import JavaClient
from tests.client_compat.servers import ProxiedServer, Server
from tests.support.eventually import eventually
from tests.support.tcp_proxy import FETCH

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

JAVA = JavaClient()
OFFSET_FOR_LEADER_EPOCH = 23
DESCRIBE_TOPIC_PARTITIONS = 75


def numbered(count: int) -> list[Record]:
    return [Record(value=b"%d" % number) for number in range(count)]


def test_the_consumer_knows_the_partitions_of_a_topic(server: Server, topic: str) -> None:
    JAVA.create_topic(server.bootstrap, topic, 3)

    assert sorted(JAVA.partitions_for(server.bootstrap, topic)) == [(0, 1, 1), (1, 1, 1), (2, 1, 1)]


@pytest.mark.parametrize("page", [1, 4, 2000])
def test_the_admin_describes_topics_page_by_page(proxied_server: ProxiedServer, topic: str, page: int) -> None:
    sizes = {f"{topic}-{letter}": partitions for letter, partitions in (("a", 1), ("b", 5), ("c", 3))}
    for name, partitions in sizes.items():
        JAVA.create_topic(proxied_server.bootstrap, name, partitions)
    asked_before = proxied_server.proxy.requests_seen(DESCRIBE_TOPIC_PARTITIONS)

    assert JAVA.describe_topics(proxied_server.bootstrap, list(sizes), page) == sizes

    asked = proxied_server.proxy.requests_seen(DESCRIBE_TOPIC_PARTITIONS) - asked_before
    assert asked == {1: 9, 4: 3, 2000: 1}[page]


def test_a_position_with_its_leader_epoch_is_looked_up_and_read(proxied_server: ProxiedServer, topic: str) -> None:
    JAVA.produce(proxied_server.bootstrap, topic, numbered(10))
    asked_before = proxied_server.proxy.requests_seen(OFFSET_FOR_LEADER_EPOCH)

    with JAVA.reader(proxied_server.bootstrap, topic) as reader:
        reader.seek(7, leader_epoch=0)

        assert values(read_from(reader, 3)) == [b"7", b"8", b"9"]

    assert proxied_server.proxy.requests_seen(OFFSET_FOR_LEADER_EPOCH) > asked_before


def test_it_asks_for_a_fetch_session_and_reads_on_where_there_is_none(
    proxied_server: ProxiedServer, topic: str
) -> None:
    """Each of its fetches after the first goes on in the session if it got one, and names its partition if not."""
    JAVA.produce(proxied_server.bootstrap, topic, numbered(5))
    with JAVA.reader(proxied_server.bootstrap, topic) as reader:
        assert values(read_from(reader, 5)) == [b"%d" % number for number in range(5)]

        def reads_on(fetches: int) -> bool:
            assert reader.poll(0.1) == []
            return proxied_server.proxy.requests_seen(FETCH) > fetches

        for _ in range(3):
            JAVA.produce(proxied_server.bootstrap, topic, [Record(value=b"next")])
            # What brings the record may have been asked for already; what follows it has not.
            fetches = proxied_server.proxy.requests_seen(FETCH)
            assert values(read_from(reader, 1)) == [b"next"]
            eventually(partial(reads_on, fetches), "it reads on")


def test_a_consumer_that_seeks_past_the_end_starts_again_where_its_settings_say(server: Server, topic: str) -> None:
    JAVA.produce(server.bootstrap, topic, numbered(5))

    with JAVA.reader(server.bootstrap, topic, start=1000) as reader:
        # auto.offset.reset is "latest" by default.
        eventually(lambda: not reader.poll(0.1) and reader.position() == 5, "it has gone back to the end")

        JAVA.produce(server.bootstrap, topic, [Record(value=b"later")])

        assert values(read_from(reader, 1)) == [b"later"]
