"""Hot standbys are ordinary clients past `target.group.size`: they take over from a lost member without a rebalance."""

from typing import Any

import pytest

from holdfast.coordinator.events.causes import CauseCode
from holdfast.wire.error_codes import ErrorCode
from tests.client_compat.servers import Server
from tests.groups.conftest import REAL, available
from tests.groups.extension_requests import commit_as, configure, extensions_of, instances_of, kinds
from tests.groups.members import (
    AIOKAFKA,
    CONFLUENT,
    FRANZ_GO,
    JAVA,
    KAFKA_PYTHON,
    SARAMA,
    GroupClient,
    Member,
    StartMember,
    await_shared,
)
from tests.groups.topics import CLIENT, PARTITIONS, await_committed, ledger, make_topic, produce
from tests.support.eventually import eventually

ACTIVE = 2
TAKEOVER_MS = 500
SHORT_SESSION_MS = 6_000
"""Of the one that goes; the others are to stay, however slow the machine is."""
METADATA_MAX_AGE_MS = 1_000
"""Any member that is made to assign a topic that has grown does it by what it knew of the topic last."""


@pytest.fixture(
    params=[
        CONFLUENT,
        KAFKA_PYTHON,
        AIOKAFKA,
        *(pytest.param(client, marks=REAL) for client in (JAVA, FRANZ_GO, SARAMA)),
    ],
    ids=lambda client: client.name,
)
def client(request: pytest.FixtureRequest) -> GroupClient:
    return available(request)


def start_active(
    start_member: StartMember, client: GroupClient, server: Server, group: str, **of_the_follower: Any
) -> tuple[Member, Member]:
    """The leader, which came first, and the follower of a group that has as many members as it wants."""
    configure(server, group, target_group_size=ACTIVE, standby_takeover_ms=TAKEOVER_MS)
    settings = {"metadata_max_age_ms": METADATA_MAX_AGE_MS}
    leader = start_member(client, server.bootstrap, instance_id="leader", **settings)
    await_shared([leader], PARTITIONS)
    follower = start_member(client, server.bootstrap, instance_id="follower", **settings, **of_the_follower)
    await_shared([leader, follower], PARTITIONS)
    assert extensions_of(server, group).leader == instances_of(server, group)["leader"]
    return leader, follower


def start_standby(start_member: StartMember, client: GroupClient, server: Server, group: str, name: str) -> Member:
    """It is in the group, and was informed that it has nothing."""
    standbys = len(extensions_of(server, group).standbys)
    settings = {"metadata_max_age_ms": METADATA_MAX_AGE_MS}
    standby = start_member(client, server.bootstrap, instance_id=name, **settings)
    eventually(lambda: len(extensions_of(server, group).standbys) == standbys + 1, f"{standby} waits")
    eventually(lambda: standby.assignments, f"{standby} gets its assignment")
    assert standby.owned == set()
    return standby


def await_takeover(standbys: list[Member], assignment: set[int]) -> Member:
    """The standby that has the assignment."""
    (standby,) = eventually(
        lambda: [one for one in standbys if one.owned == assignment], f"{assignment} is owned again"
    )
    return standby


@pytest.mark.timeout(180)
def test_standbys_take_over_from_a_killed_follower_and_a_killed_leader(
    quick_holdfast: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given
    server = quick_holdfast
    topic = make_topic(server, topic_name)
    leader, follower = start_active(start_member, client, server, group)
    standbys = [start_standby(start_member, client, server, group, name) for name in ("s1", "s2")]
    reported, generation = len(ledger(server, group)), extensions_of(server, group).generation_id
    before, assignment = leader.revocations, follower.owned

    # when the follower is killed, then a standby has its assignment, and the leader has not noticed
    follower.kill()
    first = await_takeover(standbys, assignment)
    produce(server, topic, each=1)
    await_committed(server, group, topic, 1)
    assert leader.revocations == before

    # when the leader is killed, then the other one has its assignment
    (other,) = (standby for standby in standbys if standby is not first)
    before, assignment = first.revocations, leader.owned
    leader.kill()
    assert await_takeover([other], assignment) is other
    produce(server, topic, each=1, first=1)
    await_committed(server, group, topic, 2)
    assert first.revocations == before

    # and all of that was one generation
    events = ledger(server, group)[reported:]
    took_over = [event["instance_id"] for event in events if event["kind"] == "standby took over"]
    assert took_over == [first.config.instance_id, other.config.instance_id]
    assert "rebalance started" not in kinds(events)
    assert {event["generation"] for event in events} == {generation}

    # and a topic that grows is assigned, although the one who was asked to do that is dead
    CLIENT.grow_topic(server.bootstrap, topic, PARTITIONS + 2)
    await_shared([first, other], PARTITIONS + 2)


@pytest.mark.timeout(180)
def test_without_a_standby_the_partitions_of_a_killed_member_are_reassigned(
    quick_holdfast: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    """The control: the same loss, which the survivor does notice, after the session."""
    server = quick_holdfast
    make_topic(server, topic_name)
    leader, follower = start_active(start_member, client, server, group, session_timeout_ms=SHORT_SESSION_MS)
    before = leader.revocations

    follower.kill()
    await_shared([leader], PARTITIONS)

    assert leader.revocations == before + 1
    assert "session expired" in kinds(ledger(server, group))


@pytest.mark.timeout(180)
def test_a_suspended_member_is_replaced_at_session_end_and_returns_as_a_standby(
    quick_holdfast: Server, client: GroupClient, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given
    server = quick_holdfast
    topic = make_topic(server, topic_name)
    leader, follower = start_active(start_member, client, server, group, session_timeout_ms=SHORT_SESSION_MS)
    standby = start_standby(start_member, client, server, group, "s")
    name = follower.config.instance_id
    assert name is not None
    member_id, generation = instances_of(server, group)[name], extensions_of(server, group).generation_id
    reported, before, assignment = len(ledger(server, group)), leader.revocations, follower.owned

    # when it stands still with its connection open, then the standby has its assignment, but not before the session's
    # end
    follower.suspend()
    await_takeover([standby], assignment)
    events = ledger(server, group)[reported:]
    assert kinds(events) == ["session expired", "rejoin requested", "standby took over"]
    assert (events[0]["cause_code"], events[0]["cause_count"]) == (CauseCode.HEARTBEAT_EXPIRED, SHORT_SESSION_MS)

    # and what it was is not accepted any more
    produce(server, topic, each=1)
    await_committed(server, group, topic, 1)
    assert commit_as(server, group, generation, member_id, topic, 0) is ErrorCode.UNKNOWN_MEMBER_ID

    # when it goes on, then it gives up what it had and waits
    follower.resume()
    eventually(lambda: instances_of(server, group).get(name) in extensions_of(server, group).standbys, f"{name} waits")
    eventually(lambda: follower.owned == set(), f"{follower} gives up its assignment")
    produce(server, topic, each=1, first=1)
    await_committed(server, group, topic, 2)
    assert standby.owned == assignment
    assert leader.revocations == before
    assert "rebalance started" not in kinds(ledger(server, group)[reported:])
