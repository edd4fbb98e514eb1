"""Groups of one client at a time: assignments, commits, departures, and the broker's own end.

Python's clients run on both brokers, Go's on Holdfast.
"""

from collections.abc import Callable

import pytest

from tests.client_compat.servers import Server
from tests.groups.conftest import REAL
from tests.groups.consumer_process import POLL_S
from tests.groups.members import (
    AIOKAFKA,
    CONFLUENT,
    GO,
    KAFKA_GO,
    KAFKA_PYTHON,
    GroupClient,
    StartMember,
    await_consumed,
    await_shared,
)
from tests.groups.topics import PARTITIONS, await_committed, make_topic, produce
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually

SHORT_SESSION_MS = 2_000
BROKER_DOWN_MS = 60_000
"""A session longer than either broker is away: Apache Kafka takes ten seconds and more to come back from a kill."""
STARTS_OVER_MS = 6_000
RECONNECTING_S = 90
"""How long clients may take to find a broker again that was away."""


PYTHON = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)


PAIRS = [
    *(pytest.param("holdfast", client, id=f"holdfast-{client.name}") for client in PYTHON),
    *(pytest.param("holdfast", client, id=f"holdfast-{client.name}", marks=REAL) for client in GO),
    *(pytest.param("kafka", client, id=f"kafka-{client.name}", marks=REAL) for client in PYTHON),
]
every_client = pytest.mark.parametrize(("server", "client"), PAIRS, indirect=True)
every_client_of_a_broker = pytest.mark.parametrize(("disposable_server", "client"), PAIRS, indirect=True)


def stop(server: Server) -> None:
    server.stop()


def kill(server: Server) -> None:
    server.kill()


@every_client
def test_a_member_alone_reads_and_commits_everything(
    server: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given
    topic = make_topic(server, topic_name)
    everything = produce(server, topic, each=50)

    # when
    member = start_member(client, server.bootstrap)

    # then
    await_consumed([member], everything)
    await_committed(server, group, topic, 50)
    assert member.owned == set(range(PARTITIONS))

    # and its successor goes on where it stopped
    member.stop()
    successor = start_member(client, server.bootstrap)
    more = produce(server, topic, each=10, first=50) - everything
    await_consumed([successor], more)
    await_committed(server, group, topic, 60)


@every_client
def test_a_second_member_takes_a_part_and_gives_it_back(
    server: Server, client: GroupClient, start_member: StartMember, topic_name: str
) -> None:
    # given a member that has everything
    topic = make_topic(server, topic_name)
    first = start_member(client, server.bootstrap)
    await_shared([first], PARTITIONS)

    # when another one comes
    second = start_member(client, server.bootstrap)

    # then each has its part, and what is in it
    await_shared([first, second], PARTITIONS)
    everything = produce(server, topic, each=20)
    await_consumed([first, second], everything)
    assert {partition for partition, _ in second.consumed} == second.owned

    # when it closes, long before its session would end
    second.stop()

    # then the first has everything again
    await_shared([first], PARTITIONS)
    assert first.revocations == 2


@every_client
def test_a_killed_member_loses_its_part_when_its_session_ends(
    server: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    topic = make_topic(server, topic_name)
    survivor, victim = (
        start_member(client, server.bootstrap, session_timeout_ms=SHORT_SESSION_MS) for _ in range(2)
    )  # fmt: skip
    await_shared([survivor, victim], PARTITIONS)

    victim.kill()

    await_shared([survivor], PARTITIONS)
    produce(server, topic, each=20)
    await_committed(server, group, topic, 20)


@every_client_of_a_broker
@pytest.mark.parametrize("end", [stop, kill])
def test_members_keep_their_assignments_while_the_broker_restarts(
    disposable_server: Server,
    client: GroupClient,
    start_member: StartMember,
    group: str,
    topic_name: str,
    end: Callable[[Server], None],
) -> None:
    # given two members that have read and committed
    server = disposable_server
    topic = make_topic(server, topic_name)
    # kafka-go starts over under another member id. The partitions of the one that it had move when its session ends.
    session_ms = STARTS_OVER_MS if client is KAFKA_GO else BROKER_DOWN_MS
    settings = {"session_timeout_ms": session_ms, "poll_s": POLL_S}
    members = [start_member(client, server.bootstrap, **settings) for _ in range(2)]
    assignments = await_shared(members, PARTITIONS)
    produce(server, topic, each=20)
    await_committed(server, group, topic, 20)
    revocations = [member.revocations for member in members]

    # when the broker goes and comes back on the same port
    end(server)
    server.start()

    # then what was committed is there, and the members go on with what they had
    await_committed(server, group, topic, 20, within_s=RECONNECTING_S)
    everything = produce(server, topic, each=20, first=20)
    await_committed(server, group, topic, 40, within_s=RECONNECTING_S)
    if client in GO or (client is KAFKA_PYTHON and isinstance(server, ApacheKafka)):
        # Go's clients join again when their connection breaks. kafka-python does so at times, seen on Kafka; on
        # Holdfast it must not.
        return
    assert [member.owned for member in members] == assignments
    assert [member.revocations for member in members] == revocations
    await_consumed(members, everything)


@every_client
def test_a_member_silent_for_longer_than_its_session_is_removed(
    server: Server, client: GroupClient, start_member: StartMember, topic_name: str
) -> None:
    """The control: members are kept for as long as the session, not for ever."""
    make_topic(server, topic_name)
    awake, asleep = (
        start_member(client, server.bootstrap, session_timeout_ms=SHORT_SESSION_MS) for _ in range(2)
    )  # fmt: skip
    await_shared([awake, asleep], PARTITIONS)
    revocations = asleep.revocations

    asleep.suspend()
    eventually(lambda: awake.owned == set(range(PARTITIONS)), "the partitions of the silent member move")
    asleep.resume()

    await_shared([awake, asleep], PARTITIONS)
    assert asleep.revocations > revocations
