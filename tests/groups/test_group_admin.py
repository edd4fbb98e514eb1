"""Groups listed, described, moved and deleted through the clients' admins, on both brokers."""

import uuid

import pytest
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove
from kafka.errors import NoError, UnknownMemberIdError

from tests.client_compat.errors import REFUSALS, error_code
from tests.client_compat.servers import Server
from tests.groups.admins import ConfluentAdmin, GroupAdmin, KafkaPythonAdmin
from tests.groups.members import CONFLUENT, StartMember, await_consumed, await_shared
from tests.groups.topics import PARTITIONS, await_committed, make_topic, produce
from tests.support.eventually import eventually

UNKNOWN_MEMBER_ID = 25
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
GROUP_SUBSCRIBED_TO_TOPIC = 86


@pytest.fixture(params=[ConfluentAdmin(), KafkaPythonAdmin()], ids=lambda admin: admin.name)
def admin(request: pytest.FixtureRequest) -> GroupAdmin:
    found: GroupAdmin = request.param
    return found


def test_a_group_is_listed_and_described(
    server: Server, admin: GroupAdmin, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given a static and a dynamic member
    make_topic(server, topic_name)
    members = [start_member(CONFLUENT, server.bootstrap, instance_id=instance) for instance in ("one", None)]
    assignments = await_shared(members, PARTITIONS)

    # when
    eventually(lambda: admin.states(server.bootstrap).get(group) == "stable", "the group is listed as stable")
    described = admin.describe(server.bootstrap, group)

    # then
    assert (described.state, described.assignor) == ("stable", "range")
    assert {(member.instance_id, member.partitions) for member in described.members} == {
        ("one", frozenset(assignments[0])),
        (None, frozenset(assignments[1])),
    }
    assert {(member.client_id, member.host.lstrip("/")) for member in described.members} == {("rdkafka", "127.0.0.1")}


def test_offsets_are_altered_when_the_group_is_empty(
    server: Server, admin: GroupAdmin, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given a group that has read everything
    topic = make_topic(server, topic_name)
    everything = produce(server, topic, each=20)
    member = start_member(CONFLUENT, server.bootstrap)
    await_committed(server, group, topic, 20)

    # when somebody is in it, then its offsets are its own
    with pytest.raises(REFUSALS) as refused:
        admin.alter_offsets(server.bootstrap, group, topic, {0: 5})
    assert error_code(refused.value) == UNKNOWN_MEMBER_ID

    # when nobody is, then the next one begins where the admin says
    member.stop()
    eventually(lambda: admin.states(server.bootstrap)[group] == "empty", "the group is empty")
    admin.alter_offsets(server.bootstrap, group, topic, {0: 5, 2: 18})
    assert admin.offsets(server.bootstrap, group, topic) == {0: 5, 1: 20, 2: 18, 3: 20}
    successor = start_member(CONFLUENT, server.bootstrap)
    expected = {(0, offset) for offset in range(5, 20)} | {(2, 18), (2, 19)}
    await_consumed([successor], expected)
    assert expected < everything


def test_offsets_are_made_for_a_group_that_never_was(
    server: Server, admin: GroupAdmin, start_member: StartMember, group: str, topic_name: str
) -> None:
    topic = make_topic(server, topic_name)
    produce(server, topic, each=3)

    admin.alter_offsets(server.bootstrap, group, topic, dict.fromkeys(range(PARTITIONS), 2))

    member = start_member(CONFLUENT, server.bootstrap)
    await_consumed([member], {(partition, 2) for partition in range(PARTITIONS)})


def test_a_group_is_deleted_when_it_is_empty(
    server: Server, admin: GroupAdmin, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given
    topic = make_topic(server, topic_name)
    produce(server, topic, each=5)
    member = start_member(CONFLUENT, server.bootstrap)
    await_committed(server, group, topic, 5)

    # when somebody is in it, then not
    with pytest.raises(REFUSALS) as refused:
        admin.delete(server.bootstrap, group)
    assert error_code(refused.value) == NON_EMPTY_GROUP

    # when nobody is, then it goes with its offsets
    member.stop()
    eventually(lambda: admin.states(server.bootstrap)[group] == "empty", "the group is empty")
    admin.delete(server.bootstrap, group)
    eventually(lambda: group not in admin.states(server.bootstrap), "the group is gone")
    assert admin.offsets(server.bootstrap, group, topic) == {}

    # and it cannot be deleted twice
    with pytest.raises(REFUSALS) as refused:
        admin.delete(server.bootstrap, group)
    assert error_code(refused.value) == GROUP_ID_NOT_FOUND


def test_offsets_are_deleted_unless_the_group_reads_the_topic(
    server: Server, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given
    admin = KafkaPythonAdmin()
    topic = make_topic(server, topic_name)
    produce(server, topic, each=5)
    member = start_member(CONFLUENT, server.bootstrap)
    await_committed(server, group, topic, 5)

    # when somebody reads the topic, then not
    with pytest.raises(REFUSALS) as refused:
        admin.delete_offsets(server.bootstrap, group, topic, [0])
    assert error_code(refused.value) == GROUP_SUBSCRIBED_TO_TOPIC

    # when nobody does, then the offset is gone and the others stay
    member.stop()
    eventually(lambda: admin.states(server.bootstrap)[group] == "empty", "the group is empty")
    admin.delete_offsets(server.bootstrap, group, topic, [0])
    assert admin.offsets(server.bootstrap, group, topic) == {1: 5, 2: 5, 3: 5}

    # and a group that never was has none to delete
    with pytest.raises(REFUSALS) as refused:
        admin.delete_offsets(server.bootstrap, f"{group}-{uuid.uuid4().hex[:4]}", topic, [0])
    assert error_code(refused.value) == GROUP_ID_NOT_FOUND


def test_static_members_are_removed_by_their_instance_ids(
    server: Server, start_member: StartMember, group: str, topic_name: str
) -> None:
    """KIP-345: several in one request, each with its own result. Only so does a host leave before its session ends."""
    # given three static members, two of which are gone for good
    make_topic(server, topic_name)
    stays, *go = (start_member(CONFLUENT, server.bootstrap, instance_id=f"i-{number}") for number in range(3))
    await_shared([stays, *go], PARTITIONS)
    for member in go:
        member.stop()

    # when
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    removed = [MemberToRemove(group_instance_id=f"i-{number}") for number in (1, 2, 9)]
    results = admin.remove_group_members(group, removed)
    admin.close()

    # then
    assert results == {"i-1": NoError, "i-2": NoError, "i-9": UnknownMemberIdError}
    await_shared([stays], PARTITIONS)
    assert {member.instance_id for member in ConfluentAdmin().describe(server.bootstrap, group).members} == {"i-0"}
