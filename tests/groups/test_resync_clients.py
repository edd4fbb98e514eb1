"""A topic grows while a group reads it: a leader of ours adds to the assignments, and followers of any client are
asked to rejoin."""

import pytest

from tests.client_compat.servers import Server
from tests.groups.extension_requests import extensions_of, instances_of, kinds
from tests.groups.members import (
    AIOKAFKA,
    CONFLUENT,
    HOLDFAST,
    JAVA,
    KAFKA_PYTHON,
    GroupClient,
    Member,
    StartMember,
    await_shared,
)
from tests.groups.topics import CLIENT, PARTITIONS, await_committed, ledger, make_topic, produce
from tests.support.eventually import eventually

REAL = [pytest.mark.real, pytest.mark.timeout(300)]
MORE = PARTITIONS + 2
METADATA_MAX_AGE_MS = 1_000
ASSIGNOR = "roundrobin"
"""Takes nothing from anybody when a topic grows; range does, and then it is a rebalance under every leader."""


@pytest.fixture
def follower_kind(request: pytest.FixtureRequest) -> GroupClient:
    found: GroupClient = request.param
    if found is JAVA:
        request.getfixturevalue("apache_kafka_distribution")
    return found


def start_group(start_member: StartMember, server: Server, kinds_of: list[GroupClient], group: str) -> list[Member]:
    """The first one leads."""
    members: list[Member] = []
    for number, client in enumerate(kinds_of):
        name = f"member-{number}"
        settings = {"instance_id": name, "metadata_max_age_ms": METADATA_MAX_AGE_MS, "assignor": ASSIGNOR}
        members.append(start_member(client, server.bootstrap, **settings))
        eventually(lambda: all(member.owned for member in members), f"an assignment for each of {members}")
    await_shared(members, PARTITIONS)
    assert extensions_of(server, group).leader == instances_of(server, group)["member-0"]
    return members


@pytest.mark.parametrize(
    "follower_kind",
    [HOLDFAST, KAFKA_PYTHON, AIOKAFKA, pytest.param(JAVA, marks=REAL)],
    ids=lambda client: client.name,
    indirect=True,
)
def test_partitions_are_added_to_assignments_without_a_rebalance(
    quick_holdfast: Server, follower_kind: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given
    server = quick_holdfast
    topic = make_topic(server, topic_name)
    members = start_group(start_member, server, [HOLDFAST, follower_kind], group)
    reported, generation = len(ledger(server, group)), extensions_of(server, group).generation_id
    assignments = [member.owned for member in members]

    # when
    CLIENT.grow_topic(server.bootstrap, topic, MORE)

    # then each has what it had and something more, in the same generation
    await_shared(members, MORE)
    assert all(before < member.owned for before, member in zip(assignments, members, strict=True))
    produce(server, topic, each=1, partitions=MORE)
    await_committed(server, group, topic, 1, MORE)
    events = ledger(server, group)[reported:]
    assert kinds(events) == ["resynced", "rejoin requested"]
    assert events[1]["instance_id"] == "member-1"
    assert {event["generation"] for event in events} == {generation}


def test_another_leader_makes_all_members_rejoin(
    quick_holdfast: Server, start_member: StartMember, group: str, topic_name: str
) -> None:
    """The control: the same two members, and the other one leads."""
    server = quick_holdfast
    topic = make_topic(server, topic_name)
    members = start_group(start_member, server, [AIOKAFKA, HOLDFAST], group)
    reported = len(ledger(server, group))

    CLIENT.grow_topic(server.bootstrap, topic, MORE)
    await_shared(members, MORE)

    assert kinds(ledger(server, group)[reported:]) == ["rebalance started", "generation formed", "assigned"]


def test_followers_of_librdkafka_get_the_new_partitions_too(
    quick_holdfast: Server, start_member: StartMember, group: str, topic_name: str
) -> None:
    """They rejoin by themselves when a topic grows, which is theirs to do: nothing is lost or owned twice by it."""
    server = quick_holdfast
    topic = make_topic(server, topic_name)
    members = start_group(start_member, server, [HOLDFAST, CONFLUENT], group)

    CLIENT.grow_topic(server.bootstrap, topic, MORE)

    await_shared(members, MORE)
    produce(server, topic, each=1, partitions=MORE)
    await_committed(server, group, topic, 1, MORE)
    await_shared(members, MORE)
