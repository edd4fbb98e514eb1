"""Members that say what no client should: each is answered, costs a bounded share, and no other group is slower."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.wire.apis.describe_groups import DescribedGroup
from holdfast.wire.apis.leave_group import MemberIdentity
from holdfast.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT
from holdfast.wire.headers import encode_request
from tests.broker.background_member import BackgroundMember
from tests.broker.expected_log import ExpectedLog
from tests.broker.group_members import (
    MEMBER_ID_REQUIRED,
    RANGE,
    WireMember,
    assign_evenly,
    committed,
    described,
    form,
    partitions,
)
from tests.broker.wire_client import WireClient
from tests.support.holdfast_broker import HoldfastBroker

NONE, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID = 0, 25, 82
INVALID_GROUP_ID, INCONSISTENT_GROUP_PROTOCOL, OFFSET_METADATA_TOO_LARGE = 24, 23, 12
GROUP_SUBSCRIBED_TO_TOPIC = 86
MAX_STRING_LENGTH = 32_767
"""In Kafka's wire format, and in the records of groups."""
UUID_CHARS = len("-00000000-0000-0000-0000-000000000000")


@pytest.fixture(scope="module")
def broker() -> Iterator[HoldfastBroker]:
    with HoldfastBroker() as started:
        with WireClient(started.address) as client:
            client.create_topic("orders", partitions=2)
        yield started


@contextmanager
def logged_in_at_most(count: int, broker: HoldfastBroker, expected_log: ExpectedLog) -> Iterator[None]:
    """The block may cause so many log lines; another group is not disturbed."""
    with BackgroundMember(broker.address):
        yield
    said = expected_log.lines()
    assert len(said) <= count, f"{len(said)} lines, such as {[line[:200] for line in said[:3]]}"


def assert_usable(broker: HoldfastBroker, group: str) -> None:
    """Somebody else can join the group, sync, commit and leave."""
    with WireMember(broker.address, group) as other:
        other.socket.settimeout(5)
        other.join()
        assert other.sync({other.member_id: partitions(0)}).assignment == partitions(0)
        assert other.commit(1) == NONE
        assert [entry.error_code for entry in other.leave().members] == [NONE]


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 9])
@pytest.mark.parametrize(
    "length", [MAX_STRING_LENGTH - UUID_CHARS, MAX_STRING_LENGTH - UUID_CHARS + 1, MAX_STRING_LENGTH]
)
def test_a_long_instance_id(length: int, version: int, broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    group = f"long-instance-{length}-{version}"
    with (
        logged_in_at_most(0, broker, expected_log),
        WireMember(broker.address, group, instance_id="x" * length) as member,
    ):
        # it is a member, although its member id cannot bear its whole name
        member.send_join(version=version)
        assert member.joined(version).error_code == NONE
        assert member.heartbeat() == NONE
        assert member.sync({member.member_id: partitions(0)}).assignment == partitions(0)
        with WireMember(broker.address, group, instance_id="x" * length) as restarted:
            assert restarted.join().error_code == NONE
        assert member.heartbeat() == FENCED_INSTANCE_ID
        assert restarted.again(broker.address).leave().members[0].error_code == NONE

        # and the group goes on without it
        assert_usable(broker, group)


@pytest.mark.parametrize("version", [3, 9])
def test_a_client_id_that_leaves_no_room_for_a_member_id(
    version: int, broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    group = f"long-client-{version}"
    with logged_in_at_most(0, broker, expected_log), WireMember(broker.address, group) as member:
        member.send_bytes(encode_request(member.join_request(), version, 1, "c" * MAX_STRING_LENGTH))

        answer = member.joined(version)
        assert answer.error_code == (NONE if version < 4 else MEMBER_ID_REQUIRED)
        member.member_id = answer.member_id
        assert member.leave().members[0].error_code == NONE
        assert_usable(broker, group)


def compact(text: str) -> bytes:
    """A compact string as long as one likes: our own encoder refuses what is longer than Kafka allows."""
    length, prefix = len(text) + 1, bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*prefix, length]) + text.encode()


@pytest.mark.parametrize("field", ["group id", "member id", "instance id", "protocol type", "protocol", "reason"])
def test_a_string_of_64_kb(field: str, broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    group = f"compact {field}"
    said = {"group id": group, "member id": "", "instance id": "i", "protocol type": "consumer", "protocol": "range"}
    said = {**said, "reason": "", field: "x" * 65_536}
    body = (
        compact(said["group id"])
        + struct.pack(">ii", 30_000, 30_000)
        + compact(said["member id"])
        + compact(said["instance id"])
        + compact(said["protocol type"])
        + b"\x02"
        + compact(said["protocol"])
        + b"\x02m\x00"
        + compact(said["reason"])
        + b"\x00"
    )
    header = struct.pack(">hhih", 11, 9, 1, -1) + b"\x00"
    with logged_in_at_most(1, broker, expected_log), WireMember(broker.address, group) as member:
        member.send_bytes(struct.pack(">i", len(header + body)) + header + body)

        assert member.is_closed_by_broker()
        assert_usable(broker, group)


def test_empty_strings(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with logged_in_at_most(0, broker, expected_log):
        with WireMember(broker.address, "") as nameless:
            nameless.send_join()
            assert nameless.joined().error_code == INVALID_GROUP_ID
            assert nameless.sync().error_code == INVALID_GROUP_ID
            assert nameless.heartbeat() == INVALID_GROUP_ID
            assert nameless.leave().error_code == INVALID_GROUP_ID

        # an empty instance id is an instance id
        with WireMember(broker.address, "empty-strings", instance_id="") as static:
            static.join()
            assert static.member_id.startswith("-")
            static.sync({static.member_id: partitions(0)})
            with WireMember(broker.address, "empty-strings", instance_id="") as restarted:
                assert restarted.join().error_code == NONE
            assert static.heartbeat() == FENCED_INSTANCE_ID
            assert static.leave(MemberIdentity("", "")).members[0].error_code == NONE

        with WireMember(broker.address, "empty-strings") as member:
            assert member.heartbeat() == UNKNOWN_MEMBER_ID
            assert member.sync().error_code == UNKNOWN_MEMBER_ID


# -- protocols ---------------------------------------------------------------------------------------------------------


def test_duplicate_protocols_count_once_and_the_first_of_them(
    broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    with logged_in_at_most(0, broker, expected_log), WireMember(broker.address, "duplicates") as member:
        answer = member.join([("range", b"first"), ("sticky", b"other"), ("range", b"second")])

        assert [entry.metadata for entry in answer.members] == [b"first"]
        assert answer.protocol_name == "range"


def test_ten_thousand_protocols(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    many = [(f"protocol-{number}", b"") for number in range(10_000)]
    with logged_in_at_most(0, broker, expected_log), WireMember(broker.address, "many-protocols") as member:
        assert member.join(many).protocol_name == "protocol-0"
        assert member.join(list(reversed(many))).protocol_name == "protocol-9999"


@pytest.mark.parametrize("named", ["no type", "no protocols", "neither"])
def test_a_join_without_a_protocol(named: str, broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    protocol_type = "consumer" if named == "no protocols" else ""
    protocols = RANGE if named == "no type" else ()
    with logged_in_at_most(0, broker, expected_log), WireMember(broker.address, f"unnamed {named}") as member:
        answer = member.ask(member.join_request(protocols, protocol_type=protocol_type), 9)

        assert answer.error_code == INCONSISTENT_GROUP_PROTOCOL
        assert_usable(broker, member.group)


@pytest.mark.parametrize("metadata", [b"", b"\x00", bytes(range(256)), b"\xff" * 1000], ids=len)
def test_metadata_that_is_not_the_consumer_protocol(
    metadata: bytes, broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    group = f"opaque-{len(metadata)}"
    with logged_in_at_most(0, broker, expected_log), WireMember(broker.address, group) as member:
        member.join([("range", metadata)])
        answer = member.sync({member.member_id: b"\x00 neither is this \xff"})
        assert answer.assignment == b"\x00 neither is this \xff"
        assert member.commit(5) == NONE
        shown: DescribedGroup = described(member, group)
        assert shown.members[0].member_metadata == metadata

        # who cannot tell which topics it reads deletes no offset of it
        asked = OffsetDeleteRequestTopic("orders", [OffsetDeleteRequestPartition(0)])
        deletion = member.ask(OffsetDeleteRequest(group, [asked]), 0)
        assert deletion.topics[0].partitions[0].error_code == GROUP_SUBSCRIBED_TO_TOPIC
        assert committed(member, group) == {("orders", 0): 5}

        # and the next rebalance counts no moved partitions, but it happens
        with WireMember(broker.address, group) as second:
            second.take_id()
            second.send_join([("range", metadata)])
            member.send_join([("range", metadata)])
            member.joined()
            assert second.joined().error_code == NONE


# -- leaders -----------------------------------------------------------------------------------------------------------


def test_a_leader_that_assigns_to_unknown_members_and_to_none(
    broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    with (
        logged_in_at_most(0, broker, expected_log),
        WireMember(broker.address, "unknown_members") as leader,
        WireMember(broker.address, "unknown_members") as follower,
    ):
        form(leader, follower)
        unknown_members = {f"unknown-{number}": partitions(0) for number in range(10_000)}
        follower.send_sync({leader.member_id: partitions(1)})  # not its business: ignored
        leader.send_sync(unknown_members)

        # the forgotten have a well-formed nothing, and the unknown members are not there
        assert [leader.synced().assignment, follower.synced().assignment] == [EMPTY_ASSIGNMENT, EMPTY_ASSIGNMENT]
        shown = described(leader, "unknown_members")
        assert {member.member_id for member in shown.members} == {leader.member_id, follower.member_id}


def test_a_leader_that_assigns_twice_is_taken_at_its_last_word(
    broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    with logged_in_at_most(0, broker, expected_log), WireMember(broker.address, "twice") as leader:
        leader.join()
        given = [SyncGroupRequestAssignment(leader.member_id, partitions(number)) for number in (0, 1)]
        asked = SyncGroupRequest("twice", leader.generation, leader.member_id, None, "consumer", "range", given)

        assert leader.ask(asked, 5).assignment == partitions(1)
        assert leader.sync().assignment == partitions(1)


def test_leave_with_ten_thousand_entries(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with logged_in_at_most(1, broker, expected_log), WireMember(broker.address, "leaving") as a:
        with WireMember(broker.address, "leaving", "b") as b:
            form(a, b)
            assign_evenly(a, b)
        entries = [MemberIdentity(f"unknown-{number}") for number in range(5_000)]
        entries += [MemberIdentity("")] * 2_500
        entries += [MemberIdentity("", "b")] * 2_500

        answer = a.leave(*entries)

        assert answer.error_code == NONE
        codes = [entry.error_code for entry in answer.members]
        assert codes == [UNKNOWN_MEMBER_ID] * 7_500 + [NONE] + [UNKNOWN_MEMBER_ID] * 2_499
        assert a.join().generation_id > 0


def test_commits_with_huge_metadata(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with logged_in_at_most(0, broker, expected_log), WireMember(broker.address, "huge") as member:
        assert member.commit(1, "m" * 4_096) == NONE
        assert member.commit(2, "m" * 4_097) == OFFSET_METADATA_TOO_LARGE
        assert member.commit(3, "m" * MAX_STRING_LENGTH) == OFFSET_METADATA_TOO_LARGE
        assert committed(member, "huge") == {("orders", 0): 1}
        # the limit counts characters, as Kafka's does
        assert member.commit(4, "漢" * 4_096) == NONE
