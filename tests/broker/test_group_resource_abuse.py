"""Members and groups without end: each costs a bounded share of memory, disk and time, and no other group is slower."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.leave_group import MemberIdentity
from holdfast.wire.apis.list_groups import ListGroupsRequest
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from holdfast.wire.group_records import partition_for
from tests.broker.background_member import BackgroundMember
from tests.broker.expected_log import ExpectedLog
from tests.broker.group_members import COMMIT_VERSION, WireMember, committed, described, wait_until_loaded
from tests.broker.test_resource_abuse import MEGABYTE, resident_bytes
from tests.broker.wire_client import WireClient
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

NONE, MEMBER_ID_REQUIRED = 0, 79
TOPIC_RESOURCE = 2
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.1",
}
WINDOW = 200
"""Requests on their way at a time; more would only wait in the socket."""


@pytest.fixture(scope="module")
def broker() -> Iterator[HoldfastBroker]:
    with HoldfastBroker(SETTINGS) as started:
        with WireClient(started.address) as client:
            client.create_topic("orders", partitions=2)
            client.create_topic("wide", partitions=1000)
        yield started


@contextmanager
def costs_at_most(megabytes: int, broker: HoldfastBroker, expected_log: ExpectedLog) -> Iterator[None]:
    """The block makes no line in the log, and no other group waits; afterwards the broker is hardly larger."""
    with BackgroundMember(broker.address):
        before = resident_bytes(broker.pid)
        yield
        grown = (resident_bytes(broker.pid) - before) / MEGABYTE
    assert grown < megabytes, f"{grown:.0f} MB more"
    assert expected_log.lines() == []


# -- members -----------------------------------------------------------------------------------------------------------


def test_a_client_that_asks_for_ids_and_never_uses_them(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with costs_at_most(20, broker, expected_log), WireMember(broker.address, "id-eater") as member:
        for _ in range(20_000 // WINDOW):
            for _ in range(WINDOW):
                member.send_join()
            answers = [member.receive(JOIN_GROUP, 9)[1] for _ in range(WINDOW)]
            assert {answer.error_code for answer in answers} == {MEMBER_ID_REQUIRED}

        # the last id is good, and the group is not blocked for others
        member.member_id = answers[-1].member_id
        assert described(member, "id-eater").group_state == "Empty"


def test_old_clients_that_join_and_disconnect_again_and_again(
    broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    """Before v4 nobody asks for the id first: each of them is a member until its session ends, or an admin acts."""
    group = "reconnecting"
    with costs_at_most(40, broker, expected_log):
        for _ in range(2_000):
            with WireMember(broker.address, group) as member:
                member.send_join(version=3)
        with WireMember(broker.address, group) as admin:
            eventually(lambda: len(described(admin, group).members) == 2_000, "all are members")

            # when all of them are taken out at once
            there = described(admin, group).members
            left = admin.leave(*(MemberIdentity(member.member_id) for member in there))

            # then the group is free again
            assert {entry.error_code for entry in left.members} == {NONE}
            admin.join()
            assert [member.member_id for member in described(admin, group).members] == [admin.member_id]


def test_a_group_of_thousands_that_leaves_at_once_is_all_in_the_ledger(
    broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    """More events than fit in one batch of the ledger."""
    group, count = "crowd", 5_000
    with costs_at_most(80, broker, expected_log), ExitStack() as stack, WireMember(broker.address, group) as admin:
        for number in range(count):
            with WireMember(broker.address, group, f"instance-{number}") as member:
                member.send_join()
        eventually(lambda: len(described(admin, group).members) == count, "all are members")

        left = admin.leave(*(MemberIdentity("", f"instance-{number}") for number in range(count)))

        assert {entry.error_code for entry in left.members} == {NONE}
        reader = stack.enter_context(WireClient(broker.address))
        reported = [json.loads(record.value or b"") for record in reader.fetch_all("__group_ledger")]
        gone = {
            event["instance_id"] for event in reported if (event["group_id"], event["kind"]) == (group, "member left")
        }
        assert len(gone) == count


# -- groups ------------------------------------------------------------------------------------------------------------


def test_ten_thousand_unused_groups(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with costs_at_most(60, broker, expected_log), WireMember(broker.address, "first") as member:
        for begin in range(0, 10_000, WINDOW):
            for number in range(begin, begin + WINDOW):
                member.send(member.join_request(group_id=f"unused-{number}"), 9)
            assert {member.receive(JOIN_GROUP, 9)[1].error_code for _ in range(WINDOW)} == {MEMBER_ID_REQUIRED}

        listed = member.ask(ListGroupsRequest(), 4)
        assert sum(group.group_id.startswith("unused-") for group in listed.groups) == 10_000


def test_unused_groups_are_removed() -> None:
    settings = {"offsets.retention.check.interval.ms": "200", "group.min.session.timeout.ms": "100"}
    with HoldfastBroker(settings) as broker, WireMember(broker.address, "first") as member:
        for number in range(100):
            asked = member.join_request(group_id=f"unused-{number}", session_timeout_ms=100)
            assert member.ask(asked, 9).error_code == MEMBER_ID_REQUIRED

        eventually(lambda: member.ask(ListGroupsRequest(), 4).groups == [], "the groups are forgotten", within_s=10)


def test_offsets_of_all_groups_many_times_over(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    """A short request must not become a reply without end."""
    group = "wide"
    with WireMember(broker.address, group) as member:
        positions = [OffsetCommitRequestPartition(index, index, committed_metadata="m" * 100) for index in range(1000)]
        everything = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic("wide", partitions=positions)])
        assert {entry.error_code for entry in member.ask(everything, 9).topics[0].partitions} == {NONE}
    with costs_at_most(60, broker, expected_log), WireClient(broker.address) as client:
        repeated = [OffsetFetchRequestGroup(group, topics=None)] * 1_000

        answer = client.ask(OffsetFetchRequest(groups=repeated), 9)

        (returned_once,) = answer.groups
        assert [partition.committed_offset for partition in returned_once.topics[0].partitions] == list(range(1000))


# -- commits -----------------------------------------------------------------------------------------------------------


def commit_many(member: WireMember, count: int) -> None:
    def request(offset: int) -> OffsetCommitRequest:
        position = OffsetCommitRequestPartition(0, offset, committed_metadata="")
        return OffsetCommitRequest(member.group, topics=[OffsetCommitRequestTopic("orders", partitions=[position])])

    for begin in range(0, count, WINDOW):
        for offset in range(begin, begin + WINDOW):
            member.send(request(offset), COMMIT_VERSION)
        for _ in range(WINDOW):
            answer = member.receive(OFFSET_COMMIT, COMMIT_VERSION)[1]
            assert answer.topics[0].partitions[0].error_code == NONE


def group_log_bytes(broker: HoldfastBroker, group: str) -> int:
    directory: Path = broker.data_dir / f"__consumer_offsets-{partition_for(group, 50)}"
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def test_commits_without_end(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    """Scaled: 30,000 instead of a million, in segments of a megabyte instead of a hundred."""
    group, count = "committing", 30_000
    with costs_at_most(30, broker, expected_log), WireMember(broker.address, group) as member:
        assert member.commit(0) == NONE
        change = IncrementalAlterableConfig("segment.bytes", 0, str(MEGABYTE))
        resource = IncrementalAlterConfigsResource(TOPIC_RESOURCE, "__consumer_offsets", [change])
        assert member.ask(IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code == NONE

        commit_many(member, count)

        # all of it was written, and nearly all of it goes: what is left is the segment that is written to
        eventually(lambda: group_log_bytes(broker, group) < 2 * MEGABYTE, "the group log is compacted", within_s=20)
        assert committed(member, group) == {("orders", 0): count - 1}

    # and what is left says the same to the next broker
    broker.kill()
    broker.start()
    with WireClient(broker.address) as client:
        wait_until_loaded(client)
        assert committed(client, group) == {("orders", 0): count - 1}
