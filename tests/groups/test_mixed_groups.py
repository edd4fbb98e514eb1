"""One group of several clients at once. They agree by the name of the assignor, and any of them may lead."""

import pytest

from tests.client_compat.servers import Server
from tests.groups.members import (
    AIOKAFKA,
    CONFLUENT,
    JAVA,
    KAFKA_PYTHON,
    KAFKAJS,
    GroupClient,
    StartMember,
    await_consumed,
    await_shared,
)
from tests.groups.topics import await_committed, make_topic, produce

PYTHON_CLIENTS: list[GroupClient] = [CONFLUENT, KAFKA_PYTHON, AIOKAFKA]
ALL_CLIENTS: list[GroupClient] = [JAVA, KAFKAJS, *PYTHON_CLIENTS]
PARTITIONS = 10


def assign_and_consume(
    server: Server,
    start_member: StartMember,
    clients: list[GroupClient],
    group: str,
    topic: str,
    assignor: str = "range",
) -> None:
    # given one member after the other, so that each joins a group that is there
    members = []
    for client in clients:
        members.append(start_member(client, server.bootstrap, assignor=assignor))
        await_shared(members, PARTITIONS)

    # when
    everything = produce(server, topic, each=20, partitions=PARTITIONS)

    # then every record is read once, by the owner of its partition
    await_consumed(members, everything)
    for member in members:
        assert {partition for partition, _ in member.consumed} == member.owned, member
    await_committed(server, group, topic, 20, PARTITIONS)

    # and when they go one by one, the leader first, the next one leads
    while len(members) > 1:
        members.pop(0).stop()
        await_shared(members, PARTITIONS)


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_the_python_clients_in_one_group(
    server: Server, start_member: StartMember, group: str, topic_name: str, assignor: str
) -> None:
    make_topic(server, topic_name, PARTITIONS)
    assign_and_consume(server, start_member, PYTHON_CLIENTS, group, topic_name, assignor)


@pytest.mark.parametrize("first", range(3), ids=lambda index: f"{PYTHON_CLIENTS[index].name}-leads")
def test_static_members_of_three_clients_and_a_restart_of_each(
    quick_holdfast: Server, start_member: StartMember, topic_name: str, first: int
) -> None:
    """KIP-345 with the client that leads written in one library and those that follow in others."""
    # given
    server = quick_holdfast
    make_topic(server, topic_name, PARTITIONS)
    clients = PYTHON_CLIENTS[first:] + PYTHON_CLIENTS[:first]
    members = []
    for client in clients:
        members.append(start_member(client, server.bootstrap, instance_id=client.name))
        await_shared(members, PARTITIONS)
    assignments = [member.owned for member in members]
    revocations = [member.revocations for member in members]

    # when each is restarted in turn
    for index, client in enumerate(clients):
        members[index].stop()
        members[index] = start_member(client, server.bootstrap, instance_id=client.name)
        revocations[index] = 0
        await_shared(members, PARTITIONS)

        # then it has its own partitions again and nobody else has noticed
        assert [member.owned for member in members] == assignments
        assert [member.revocations for member in members] == revocations


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("apache_kafka_distribution", "needs_kafkajs")
@pytest.mark.parametrize("leader", [JAVA, KAFKAJS, CONFLUENT], ids=lambda client: f"{client.name}-leads")
def test_all_clients_in_one_group(
    server: Server, start_member: StartMember, group: str, topic_name: str, leader: GroupClient
) -> None:
    make_topic(server, topic_name, PARTITIONS)
    others = [client for client in ALL_CLIENTS if client is not leader]
    assign_and_consume(server, start_member, [leader, *others], group, topic_name)


@pytest.mark.real
@pytest.mark.usefixtures("needs_kafkajs")
def test_kafkajs_alone(server: Server, start_member: StartMember, group: str, topic_name: str) -> None:
    make_topic(server, topic_name, PARTITIONS)
    assign_and_consume(server, start_member, [KAFKAJS, KAFKAJS], group, topic_name)
