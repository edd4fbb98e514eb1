"""KIP-814: a static leader that restarts goes on leading and assigns nothing.

A client that is too old for that, or does not honour it (docs/decisions/0017), follows without knowing that it
leads; then Holdfast watches the topics instead.
"""

from typing import Any

import pytest

from holdfast.coordinator.events.causes import CauseCode
from tests.client_compat.servers import Server
from tests.groups.conftest import REAL, available
from tests.groups.members import CONFLUENT, FRANZ_GO, JAVA, SARAMA, GroupClient, Member, StartMember, await_shared
from tests.groups.topics import CLIENT, ledger, make_topic
from tests.support.eventually import eventually

INSTANCES = ("a", "b", "c")
PARTITIONS, MORE_PARTITIONS = 6, 9


def start_and_restart_leader(
    server: Server, client: GroupClient, start_member: StartMember, group: str, **settings: Any
) -> tuple[list[Member], Member, list[dict[str, Any]]]:
    """The members, the leader among them, and what the ledger tells of its restart."""
    # given
    members = {
        instance: start_member(client, server.bootstrap, instance_id=instance, **settings) for instance in INSTANCES
    }
    await_shared(list(members.values()), PARTITIONS)
    formed = ledger(server, group)
    leads = [event["instance_id"] for event in formed if event["kind"] == "generation formed"][-1]
    assignments = {instance: member.owned for instance, member in members.items()}
    before = {instance: member.revocations for instance, member in members.items() if instance != leads}

    # when
    members[leads].stop()
    members[leads] = start_member(client, server.bootstrap, instance_id=leads, **settings)

    # then
    eventually(lambda: members[leads].owned == assignments[leads], "the leader is back with its assignment")
    assert {instance: member.owned for instance, member in members.items()} == assignments
    assert {instance: members[instance].revocations for instance in before} == before
    return list(members.values()), members[leads], ledger(server, group)[len(formed) :]


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("apache_kafka_distribution")
def test_a_restarted_leader_still_leads_and_does_not_assign(
    quick_holdfast: Server, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given a group of the Java client, whose leader looks at its topics twice a second
    server = quick_holdfast
    make_topic(server, topic_name, PARTITIONS)

    members, leader, reported = start_and_restart_leader(server, JAVA, start_member, group, metadata_max_age_ms=500)

    # then its return is all that happened: no generation was formed, nothing was assigned
    assert [event["kind"] for event in reported] == ["static member rejoined"]
    assert reported[0]["instance_id"] == leader.config.instance_id

    # and when the topic grows, it is the restarted leader that notices
    before = len(ledger(server, group))
    CLIENT.grow_topic(server.bootstrap, topic_name, MORE_PARTITIONS)
    await_shared(members, MORE_PARTITIONS)
    started = ledger(server, group)[before]
    assert started["kind"] == "rebalance started"
    assert started["instance_id"] == leader.config.instance_id
    assert started["reason"].startswith("cached metadata has changed")


@pytest.fixture
def client(request: pytest.FixtureRequest) -> GroupClient:
    return available(request)


@pytest.mark.parametrize(
    ("client", "assignor"),
    [
        pytest.param(CONFLUENT, "range", id="confluent-kafka"),
        pytest.param(FRANZ_GO, "range", id="franz-go", marks=REAL),
        pytest.param(FRANZ_GO, "cooperative-sticky", id="franz-go-cooperative", marks=REAL),
        pytest.param(SARAMA, "range", id="sarama", marks=REAL),
    ],
    indirect=["client"],
)
def test_the_topics_of_a_restarted_leader_without_skip_assignment_are_watched(
    quick_holdfast: Server, client: GroupClient, assignor: str, start_member: StartMember, group: str, topic_name: str
) -> None:
    """librdkafka speaks JoinGroup up to version 5; franz-go would compare the assignment with its own plan. Nobody
    looks at the topics by itself before Holdfast does; franz-go shares out what it knew of them last."""
    server = quick_holdfast
    make_topic(server, topic_name, PARTITIONS)
    settings = {"assignor": assignor} | ({"metadata_max_age_ms": 2_000} if client is FRANZ_GO else {})

    members, leader, reported = start_and_restart_leader(server, client, start_member, group, **settings)

    assert [event["kind"] for event in reported] == ["static member rejoined"]
    assert reported[0]["instance_id"] == leader.config.instance_id

    before = len(ledger(server, group))
    CLIENT.grow_topic(server.bootstrap, topic_name, MORE_PARTITIONS)
    await_shared(members, MORE_PARTITIONS)
    started = ledger(server, group)[before]
    assert started["kind"] == "rebalance started"
    assert (started["cause_code"], started["cause_detail"]) == (CauseCode.TOPIC_GREW, topic_name)
