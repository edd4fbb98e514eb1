"""Procedures of docs/operations.md, as a person would follow them. Scaling up and standbys have files of their own."""

import re
import shlex
import textwrap

import pytest
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove
from kafka.errors import NoError

from holdfast.cli.main import main
from tests.cli.test_docs import pattern_of
from tests.client_compat.servers import Server
from tests.groups.members import CONFLUENT, Member, StartMember, await_shared
from tests.groups.topics import ledger, make_topic
from tests.support.eventually import eventually
from tests.support.kafka_distribution import REPOSITORY

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
    assignment, before = old.owned, other.revocations

    # when a new process comes with the old one's instance id, while that still runs
    new = start(start_member, server, "orders-0")

    # then it replaces the member, the old one is fenced for good, and the other notices nothing
    eventually(lambda: new.owned == assignment, "the new process has the old one's partitions")
    eventually(lambda: "fenced" in old.output().lower(), "the old process knows")
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
    reported = len(ledger(server, group))
    members[0].stop()
    members[0] = start(start_member, server, "orders-0")
    await_shared(members, PARTITIONS)
    assert kinds(server, group)[reported:] == ["static member rejoined"]

    # and when one goes back to being dynamic, its old instance id is removed by hand rather than waited for
    members[0].stop()
    remove_members(server, group, "orders-0")
    members[0] = start(start_member, server, None)
    await_shared(members, PARTITIONS)


def test_scale_down_in_one_rebalance(server: Server, start_member: StartMember, group: str) -> None:
    # given three static members with long sessions
    members = [start(start_member, server, f"orders-{index}") for index in range(3)]
    await_shared(members, PARTITIONS)
    reported = len(ledger(server, group))

    # when two of them are stopped
    for member in members[1:]:
        member.stop()

    # then nothing moves
    assert kinds(server, group)[reported:] == []

    # until they are removed, both in one request
    remove_members(server, group, "orders-1", "orders-2")
    await_shared(members[:1], PARTITIONS)
    assert kinds(server, group)[reported:].count("rebalance started") == 1


HOST_IDS = ("host-1-a", "host-1-b", "host-10-a")


def host_members(start_member: StartMember, server: Server) -> list[Member]:
    """Two members on the host that is taken out and one on another, in the order in which they joined."""
    members: list[Member] = []
    for name in HOST_IDS:
        members.append(start(start_member, server, name))
        await_shared(members, PARTITIONS)
    return members


def test_take_a_host_out_with_all_its_members(
    server: Server, start_member: StartMember, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    note, remove = console_examples("Take a host out with all its members")

    # given a host with two members, and another whose name begins with the first one's
    members = host_members(start_member, server)
    reported = len(ledger(server, group))

    # when the ids are noted, as the page says
    run_example(note, server, group, capsys)

    # and the members of the host are stopped, nothing moves
    for member in members[:2]:
        member.stop()
    assert kinds(server, group)[reported:] == []

    # then both members are removed in one rebalance, and the other host has everything
    run_example(remove, server, group, capsys)
    await_shared(members[2:], PARTITIONS)
    assert kinds(server, group)[reported:].count("member left") == 2
    assert kinds(server, group)[reported:].count("rebalance started") == 1


def test_a_script_that_takes_a_host_out_leaves_a_member_that_came_back(
    server: Server, start_member: StartMember, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", section("Take a host out with all its members"), re.DOTALL)
    members = host_members(start_member, server)

    def stop_and_restart_one() -> None:
        for number in (0, 1):
            members[number].stop()
        members[0] = start(start_member, server, HOST_IDS[0])
        await_shared([members[0]], PARTITIONS // 3)

    # when the page's script runs, and one of the processes is started again before the members are removed
    stops = script.replace("# stop the processes here", "stop()")
    assert stops != script
    exec(as_here(stops, server, group), {"stop": stop_and_restart_one})

    # then that one stays in the group
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("host-1-a ") and "FENCED_INSTANCE_ID" in first
    assert second == "host-1-b removed"
    await_shared([members[0], members[2]], PARTITIONS)


def section(heading: str) -> str:
    """A section of docs/operations.md."""
    _, _, rest = (REPOSITORY / "docs" / "operations.md").read_text().partition(f"## {heading}\n")
    assert rest, f"docs/operations.md has no section {heading!r}"
    return rest.partition("\n## ")[0]


def console_examples(heading: str) -> list[tuple[str, str]]:
    """The commands of a section, each with what it prints."""
    blocks = re.findall(r"```console\n(.*?)```", section(heading), re.DOTALL)
    parted = [textwrap.dedent(block).removeprefix("$ ").partition("\n") for block in blocks]
    return [(command, printed) for command, _, printed in parted]


def as_here(text: str, server: Server, group: str) -> str:
    """With the broker and the group of this test for those of the page."""
    return text.replace("127.0.0.1:9092", server.bootstrap).replace('"orders"', f'"{group}"')


def run_example(example: tuple[str, str], server: Server, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, printed = example
    words = shlex.split(as_here(command, server, group).replace("--group orders", f"--group {group}"))
    assert words[0] == "holdfast"
    capsys.readouterr()
    assert main(words[1:]) == 0
    expected = printed.replace("orders ", f"{group} ")
    assert re.fullmatch(pattern_of(expected), capsys.readouterr().out.strip()), expected


def remove_members(server: Server, group: str, *instance_ids: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        removed = admin.remove_group_members(group, [MemberToRemove(group_instance_id=name) for name in instance_ids])
        assert set(removed.values()) == {NoError}
    finally:
        admin.close()
