"""Standbys of Go's client families beside others: the Go client is the one that is lost, and the one that takes over.

Dynamic members, because kafka-go has no others.
"""

from typing import Any

import pytest

from tests.client_compat.servers import Server
from tests.groups.extension_requests import configure, extensions_of, kinds
from tests.groups.members import CONFLUENT, FRANZ_GO, KAFKA_GO, SARAMA, GroupClient, Member, StartMember, await_shared
from tests.groups.topics import CLIENT, PARTITIONS, await_committed, ledger, make_topic, produce
from tests.support.eventually import eventually

TAKEOVER_MS = 500
METADATA_MAX_AGE_MS = 1_000

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), pytest.mark.usefixtures("needs_go")]


def start_group(
    start_member: StartMember, server: Server, group: str, *, target: int, active: list[GroupClient]
) -> list[Member]:
    """Members one after the other, the first of which leads."""
    configure(server, group, target_group_size=target, standby_takeover_ms=TAKEOVER_MS)
    members: list[Member] = []
    for client in active:
        members.append(start_member(client, server.bootstrap, metadata_max_age_ms=METADATA_MAX_AGE_MS))
        await_shared(members, PARTITIONS)
    return members


def start_standby(start_member: StartMember, client: GroupClient, server: Server, group: str) -> Member:
    standbys = len(extensions_of(server, group).standbys)
    standby = start_member(client, server.bootstrap, metadata_max_age_ms=METADATA_MAX_AGE_MS)
    eventually(lambda: len(extensions_of(server, group).standbys) == standbys + 1, f"{standby} waits")
    eventually(lambda: standby.assignments, f"{standby} gets its assignment")
    assert standby.owned == set()
    return standby


def rebalances(events: list[dict[str, Any]]) -> list[str]:
    return [event["cause_code"] for event in events if event["kind"] == "rebalance started"]


@pytest.mark.parametrize(
    ("lost", "standby"),
    [(KAFKA_GO, KAFKA_GO), (FRANZ_GO, CONFLUENT), (CONFLUENT, FRANZ_GO), (SARAMA, KAFKA_GO), (KAFKA_GO, SARAMA)],
    ids=lambda client: client.name,
)
@pytest.mark.parametrize("loses", ["leader", "follower"])
def test_a_standby_takes_over_from_a_lost_member(
    quick_holdfast: Server,
    start_member: StartMember,
    group: str,
    topic_name: str,
    lost: GroupClient,
    standby: GroupClient,
    loses: str,
) -> None:
    # given a leader, a follower and a standby
    server = quick_holdfast
    topic = make_topic(server, topic_name)
    members = start_group(start_member, server, group, target=2, active=[lost, lost])
    successor = start_standby(start_member, standby, server, group)
    victim, survivor = members if loses == "leader" else members[::-1]
    reported, before, assignment = len(ledger(server, group)), survivor.revocations, victim.owned

    # when
    victim.kill()

    # then the standby has its assignment, and the survivor has not noticed
    eventually(lambda: successor.owned == assignment, f"{successor} has {assignment}")
    produce(server, topic, each=1)
    await_committed(server, group, topic, 1)
    assert survivor.revocations == before
    assert kinds(ledger(server, group)[reported:]) == ["member dropped", "rejoin requested", "standby took over"]

    # and a topic that grows is shared out
    CLIENT.grow_topic(server.bootstrap, topic, PARTITIONS + 2)
    await_shared([successor, survivor], PARTITIONS + 2)


@pytest.mark.parametrize("client", [KAFKA_GO, FRANZ_GO, SARAMA], ids=lambda client: client.name)
def test_a_larger_target_is_one_rebalance(
    quick_holdfast: Server, start_member: StartMember, group: str, topic_name: str, client: GroupClient
) -> None:
    # given one member and a standby
    server = quick_holdfast
    topic = make_topic(server, topic_name)
    (member,) = start_group(start_member, server, group, target=1, active=[client])
    standby = start_standby(start_member, client, server, group)
    reported = len(ledger(server, group))

    # when
    configure(server, group, target_group_size=2)

    # then the two share the topic after one rebalance, and there is no other
    await_shared([member, standby], PARTITIONS)
    produce(server, topic, each=1)
    await_committed(server, group, topic, 1)
    assert len(rebalances(ledger(server, group)[reported:])) == 1
