"""What Kafka tests of its own static membership, with librdkafka and with Kafka's own consumer: restarts in any order,
two holders of one instance id, and the broker's end in between; each with the dynamic control in which groups do move.
"""

import pytest

from holdfast.coordinator.events.causes import CauseCode
from tests.client_compat.servers import Server
from tests.groups.conftest import REAL, available
from tests.groups.members import CONFLUENT, FRANZ_GO, GO, JAVA, SARAMA, GroupClient, Member, StartMember, await_shared
from tests.groups.topics import CLIENT, await_committed, ledger, make_topic, produce
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

PARTITIONS = 6
BOUNCES = 5
INSTANCES = ("a", "b", "c")
SHORT_SESSION_MS = 6_000
"""Of the one that is killed; it must not end before."""


@pytest.fixture(
    params=[CONFLUENT, *(pytest.param(client, marks=REAL) for client in (JAVA, FRANZ_GO, SARAMA))],
    ids=lambda client: client.name,
)
def client(request: pytest.FixtureRequest) -> GroupClient:
    return available(request)


def start_all(start_member: StartMember, client: GroupClient, server: Server, *, static: bool) -> list[Member]:
    members = [
        start_member(client, server.bootstrap, instance_id=instance if static else None) for instance in INSTANCES
    ]
    await_shared(members, PARTITIONS)
    return members


def bounce(start_member: StartMember, client: GroupClient, members: list[Member], index: int) -> None:
    """Stop one member in order and start it again under the same name."""
    old = members[index]
    old.stop()
    members[index] = start_member(client, old.config.bootstrap, instance_id=old.config.instance_id)
    eventually(lambda: members[index].owned, f"{members[index]} is back with its assignment")


def await_idle_group(server: Server, members: list[Member], group: str) -> None:
    """Every revocation that was going to happen has happened: a record to each partition is read and committed."""
    topic = members[0].config.topic
    _, done = CLIENT.watermarks(server.bootstrap, topic)
    produce(server, topic, each=1, first=done, partitions=PARTITIONS)
    await_committed(server, group, topic, done + 1, PARTITIONS)
    await_shared(members, PARTITIONS)


def was_fenced(member: Member) -> bool:
    """In the words of each client: a fenced static consumer, FencedInstanceIdException, or what sarama says."""
    said = member.output().lower()
    return "fenced" in said or "another consumer with the same group.instance.id" in said


@pytest.mark.timeout(300)
def test_five_rolling_bounces_of_three_static_members_move_nothing(
    quick_holdfast: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given
    server = quick_holdfast
    make_topic(server, topic_name, PARTITIONS)
    members = start_all(start_member, client, server, static=True)
    assignments = {member.config.instance_id: member.owned for member in members}
    formed = ledger(server, group)
    # The members of a new group come one by one: what was revoked then is not counted.
    before = {id(member): member.revocations for member in members}

    # when
    revocations = 0
    for _ in range(BOUNCES):
        for index in range(len(members)):
            bounce(start_member, client, members, index)
            revocations += sum(member.revocations - before.get(id(member), 0) for member in members)
            # then each is back with what it had
            assert {member.config.instance_id: member.owned for member in members} == assignments

    # and no survivor was ever asked to give anything up
    await_idle_group(server, members, group)
    assert revocations == 0
    assert sum(member.revocations - before.get(id(member), 0) for member in members) == 0
    events = ledger(server, group)[len(formed) :]
    assert [event["kind"] for event in events] == ["static member rejoined"] * BOUNCES * len(INSTANCES)
    assert {event["generation"] for event in events} == {formed[-1]["generation"]}


@pytest.mark.timeout(300)
def test_bounces_of_dynamic_members_do_move_partitions(
    quick_holdfast: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    """The control: the same without instance ids."""
    server = quick_holdfast
    make_topic(server, topic_name, PARTITIONS)
    members = start_all(start_member, client, server, static=False)
    stays = members[-1]
    before = stays.revocations

    for index in range(len(members) - 1):
        bounce(start_member, client, members, index)
        await_shared(members, PARTITIONS)

    # Each bounce is a leave and a join; if the member is back before the others have heard of its leaving, one.
    assert stays.revocations - before >= 2
    assert "member left" in {event["kind"] for event in ledger(server, group)}


def test_the_later_of_two_with_one_instance_id_is_assigned(
    quick_holdfast: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given a group that is stable
    server = quick_holdfast
    make_topic(server, topic_name, PARTITIONS)
    members = start_all(start_member, client, server, static=True)
    bystanders, older = members[1:], members[0]
    before = [member.revocations for member in bystanders]

    # when a second process says that it is one of them
    younger = start_member(client, server.bootstrap, instance_id=older.config.instance_id)

    # then the older one is informed and ends, the younger one has its assignment, and nobody else has noticed
    eventually(lambda: older.exit_code is not None, "the older one ends")
    assert was_fenced(older), older.output()
    await_shared([younger, *bystanders], PARTITIONS)
    assert [member.revocations for member in bystanders] == before
    fenced = [event for event in ledger(server, group) if event["kind"] == "fenced"]
    assert {event["instance_id"] for event in fenced} == {older.config.instance_id}


def test_of_two_started_with_one_instance_id_only_one_is_assigned(
    quick_holdfast: Server, client: GroupClient, start_member: StartMember, topic_name: str
) -> None:
    """The other order: neither was there before the other."""
    server = quick_holdfast
    make_topic(server, topic_name, PARTITIONS)

    twins = [start_member(client, server.bootstrap, instance_id="twin") for _ in range(2)]

    eventually(lambda: any(twin.exit_code is not None for twin in twins), "one of the two ends")
    (loser,) = (twin for twin in twins if twin.exit_code is not None)
    (winner,) = (twin for twin in twins if twin is not loser)
    assert was_fenced(loser), loser.output()
    await_shared([winner], PARTITIONS)


def test_members_bounced_then_the_broker_killed(
    disposable_holdfast: HoldfastBroker, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given static members each of which has been restarted
    server = disposable_holdfast
    make_topic(server, topic_name, PARTITIONS)
    members = start_all(start_member, client, server, static=True)
    for index in range(len(members)):
        bounce(start_member, client, members, index)
    await_idle_group(server, members, group)
    assignments, before = [member.owned for member in members], [member.revocations for member in members]
    reported = len(ledger(server, group))

    # when
    server.kill()
    server.start()

    # then the same members go on, and when they are restarted once more they still have their assignment
    await_idle_group(server, members, group)
    if client in GO:
        return  # they join again when their connection breaks, and their leader's join is a rebalance
    assert [member.revocations for member in members] == before
    bounce(start_member, client, members, 0)
    await_idle_group(server, members, group)
    assert [member.owned for member in members] == assignments
    assert [member.revocations for member in members[1:]] == before[1:]
    assert {event["kind"] for event in ledger(server, group)[reported:]} == {"static member rejoined"}


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_a_killed_consumers_partitions_move_after_its_session(
    quick_holdfast: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str, static: bool
) -> None:
    # given
    server = quick_holdfast
    make_topic(server, topic_name, PARTITIONS)
    instances = INSTANCES[:2] if static else (None, None)
    survivor = start_member(client, server.bootstrap, instance_id=instances[0])
    victim = start_member(client, server.bootstrap, instance_id=instances[1], session_timeout_ms=SHORT_SESSION_MS)
    await_shared([survivor, victim], PARTITIONS)

    # when
    victim.kill()

    # then
    await_shared([survivor], PARTITIONS)
    (expired,) = (event for event in ledger(server, group) if event["kind"] == "session expired")
    assert expired.get("instance_id") == victim.config.instance_id
    assert (expired["cause_code"], expired["cause_count"]) == (CauseCode.HEARTBEAT_EXPIRED, SHORT_SESSION_MS)
