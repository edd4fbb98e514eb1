"""Procedures of docs/operations.md, as a person would follow them. Scaling up and standbys have files of their own."""

import pytest
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove
from kafka.errors import NoError

from tests.clients.servers import Server
from tests.groups.members import CONFLUENT, Member, StartMember, await_shared
from tests.groups.world import ledger, make_topic
from tests.support.eventually import eventually

PARTITIONS = 6
LONG_SESSION_MS = 60_000
SHORT_SESSION_MS = 2_000

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def server(quick_holdfast: Server, topic_name: str) -> Server:
    make_topic(quick_holdfast, topic_name, PARTITIONS)
    return quick_holdfast


def kinds(server: Server, group: str) -> list[str]:
    return [event["kind"] for event in ledger(server, group)]


def start(
    start_member: StartMember, server: Server, instance_id: str | None, session_ms: int = LONG_SESSION_MS
) -> Member:
    return start_member(CONFLUENT, server.bootstrap, instance_id=instance_id, session_timeout_ms=session_ms)


def test_replace_a_host(server: Server, start_member: StartMember, group: str) -> None:
    # given two static members
    old, other = (start(start_member, server, name) for name in ("orders-0", "orders-1"))
    await_shared([old, other], PARTITIONS)
    share, before = old.owned, other.revocations

    # when a new process comes with the old one's instance id, while that still runs
    new = start(start_member, server, "orders-0")

    # then it takes the seat, the old one is told so for good, and the other notices nothing
    eventually(lambda: new.owned == share, "the new process has the old one's partitions")
    eventually(lambda: "fenced" in old.said().lower(), "the old process knows")
    assert other.revocations == before
    assert "fenced" in kinds(server, group)


def test_a_restart_longer_than_the_session_moves_the_partitions(
    server: Server, start_member: StartMember, group: str
) -> None:
    # given a session shorter than the restart
    brief, other = (start(start_member, server, name, SHORT_SESSION_MS) for name in ("orders-0", "orders-1"))
    await_shared([brief, other], PARTITIONS)

    # when the member is away for longer
    brief.stop()

    # then its partitions move when its session ends
    await_shared([other], PARTITIONS)
    assert "session expired" in kinds(server, group)


def test_upgrade_from_dynamic_to_static_and_downgrade_again(
    server: Server, start_member: StartMember, group: str
) -> None:
    # given dynamic members
    members = [start(start_member, server, None) for _ in range(2)]
    await_shared(members, PARTITIONS)

    # when each is restarted with an instance id
    for index in range(2):
        members[index].stop()
        members[index] = start(start_member, server, f"orders-{index}")
        await_shared(members, PARTITIONS)

    # then from now on restarts are quiet
    told = len(ledger(server, group))
    members[0].stop()
    members[0] = start(start_member, server, "orders-0")
    await_shared(members, PARTITIONS)
    assert kinds(server, group)[told:] == ["static member rejoined"]

    # and when one goes back to being dynamic, its old seat is removed by hand rather than waited for
    members[0].stop()
    remove_seats(server, group, "orders-0")
    members[0] = start(start_member, server, None)
    await_shared(members, PARTITIONS)


def test_scale_down_in_one_rebalance(server: Server, start_member: StartMember, group: str) -> None:
    # given three static members with long sessions
    members = [start(start_member, server, f"orders-{index}") for index in range(3)]
    await_shared(members, PARTITIONS)
    told = len(ledger(server, group))

    # when two of them are stopped
    for member in members[1:]:
        member.stop()

    # then nothing moves
    assert kinds(server, group)[told:] == []

    # until their seats are removed, both in one request
    remove_seats(server, group, "orders-1", "orders-2")
    await_shared(members[:1], PARTITIONS)
    assert kinds(server, group)[told:].count("rebalance started") == 1


def remove_seats(server: Server, group: str, *instance_ids: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        removed = admin.remove_group_members(group, [MemberToRemove(group_instance_id=name) for name in instance_ids])
        assert set(removed.values()) == {NoError}
    finally:
        admin.close()
