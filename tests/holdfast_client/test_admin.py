"""`Admin` on both servers: who is in which group, what they have, and the levers that an operator needs."""

from __future__ import annotations

import time

import pytest

from holdfast import Admin, Member
from holdfast.client.errors import ConfigError, GroupError, TopicError
from holdfast.wire.error_codes import ErrorCode
from tests.client_compat.servers import Server
from tests.groups.topics import committed, make_topic, produce
from tests.holdfast_client.consumers import Watched, evenly_assigned, poll_until, watching


@pytest.fixture
def admin(server: Server) -> Admin:
    return Admin({"bootstrap.servers": server.bootstrap})


def test_a_group_is_listed_and_described_with_members_assignments_and_lag(
    server: Server, admin: Admin, topic: str, group: str
) -> None:
    make_topic(server, topic)
    produce(server, topic, 10)
    first = Watched(server, group, group_instance_id="instance-1", client_id="one").subscribe(topic)
    second = Watched(server, group, client_id="two").subscribe(topic)
    with admin, watching(first, second):
        poll_until(evenly_assigned(4, first, second), "both have two", first, second)
        poll_until(lambda: len(first.records + second.records) == 40, "all records", first, second)
        first.consumer.commit(asynchronous=False)
        produce(server, topic, 5, first=10)

        (listed,) = [one for one in admin.list_groups() if one.group_id == group]
        assert (listed.protocol_type, listed.state) == ("consumer", "Stable")
        assert group in {one.group_id for one in admin.list_groups(states=["Stable"])}
        assert group not in {one.group_id for one in admin.list_groups(states=["Empty"])}

        described = admin.describe_group(group)
        assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
        members = {one.client_id: one for one in described.members}
        assert members["one"].group_instance_id == "instance-1"
        assert members["two"].group_instance_id is None
        assert members["one"].partitions == {topic: first.partitions}
        assert list(members["two"].topics) == [topic]
        assert members["one"].host.lstrip("/") == "127.0.0.1"
        assert members["one"].member_id == first.consumer.memberid()

        lags = {one.partition: one for one in admin.lag(group)}
        assert sorted(lags) == [0, 1, 2, 3]
        for partition in first.partitions:
            found = lags[partition]
            assert (found.committed, found.end, found.lag) == (10, 15, 5)
            assert [owner.client_id for owner in found.owners] == ["one"]


def test_a_group_of_another_kind_is_described_without_guesses(server: Server, admin: Admin, group: str) -> None:
    config = {"bootstrap.servers": server.bootstrap, "group.id": group}
    with (
        admin,
        Member(config, "shards", {"p": {"x": 1}}, lambda members: {m.member_id: [1] for m in members}) as member,
    ):
        member.wait_for_assignment(60)
        described = admin.describe_group(group)
        assert (described.protocol_type, described.protocol) == ("shards", "p")
        assert [(one.metadata, one.assignment, one.partitions) for one in described.members] == [
            (b'{"x":1}', b"[1]", {})
        ]


def test_a_group_that_does_not_exist_is_dead(server: Server, admin: Admin, group: str) -> None:
    with admin:
        described = admin.describe_group(group)
        assert (described.state, described.members) == ("Dead", ())
        assert admin.lag(group) == []


def test_members_are_removed_with_a_result_each(server: Server, admin: Admin, topic: str, group: str) -> None:
    make_topic(server, topic)
    static = Watched(server, group, group_instance_id="instance-1", session_timeout_ms=60_000).subscribe(topic)
    with admin, watching(static):
        poll_until(lambda: static.partitions, "a member", static)
        static.consumer.close()

        results = admin.remove_members(group, instance_ids=["instance-1", "instance-9"], member_ids=["nobody"])
        codes = {one.group_instance_id or one.member_id: one.error and one.error.code for one in results}
        assert codes == {
            "instance-1": None,
            "instance-9": ErrorCode.UNKNOWN_MEMBER_ID,
            "nobody": ErrorCode.UNKNOWN_MEMBER_ID,
        }
        assert admin.describe_group(group).members == ()


def test_a_pair_of_ids_is_removed_only_if_it_is_still_the_members(
    server: Server, admin: Admin, topic: str, group: str
) -> None:
    # given a static member, whose ids were noted, and that was restarted since; and one that was not
    make_topic(server, topic)
    static = {"group_instance_id": "instance-1", "session_timeout_ms": 60_000}
    before = Watched(server, group, **static).subscribe(topic)
    other = Watched(server, group, group_instance_id="instance-2", session_timeout_ms=60_000).subscribe(topic)
    with admin, watching(before, other):
        poll_until(evenly_assigned(4, before, other), "both have two", before, other)
        noted = [(one.member_id, one.group_instance_id) for one in admin.describe_group(group).members]
        before.consumer.close()
        after = Watched(server, group, **static).subscribe(topic)
        with watching(after):
            poll_until(evenly_assigned(4, after, other), "the instance id is in use again", after, other)
            after.consumer.close()
            other.consumer.close()

            # when all are to be removed by what was noted
            results = admin.remove_members(group, members=noted)

            # then the one that came back stays a member
            codes = {one.group_instance_id: one.error and one.error.code for one in results}
            assert codes == {"instance-1": ErrorCode.FENCED_INSTANCE_ID, "instance-2": None}
            (fenced,) = [one.error for one in results if one.error is not None]
            assert "the instance id belongs to another member id" in str(fenced)
            (left,) = admin.describe_group(group).members
            assert left.group_instance_id == "instance-1"

            # and either id alone still does: the controls
            assert [one.error for one in admin.remove_members(group, members=[("", "instance-1")])] == [None]
            assert admin.describe_group(group).members == ()


def test_all_members_are_removed_in_one_request(server: Server, admin: Admin, topic: str, group: str) -> None:
    make_topic(server, topic)
    static = Watched(server, group, group_instance_id="instance-1", session_timeout_ms=60_000).subscribe(topic)
    dynamic = Watched(server, group).subscribe(topic)
    with admin, watching(static, dynamic):
        poll_until(evenly_assigned(4, static, dynamic), "both have two", static, dynamic)

        results = admin.remove_members(group, all_members=True, reason="start over")

        assert [one.error for one in results] == [None, None]
        poll_until(
            lambda: dynamic.callbacks.count(("on_assign", dynamic.partitions)) >= 1, "they come back", static, dynamic
        )


def test_groups_are_deleted_or_it_is_said_why_not(server: Server, admin: Admin, topic: str, group: str) -> None:
    make_topic(server, topic)
    one = Watched(server, group).subscribe(topic)
    with admin:
        with watching(one):
            poll_until(lambda: len(one.partitions) == 4, "a member", one)
            results = admin.delete_groups([group, f"{group}-missing"])
            refused, missing = results[group], results[f"{group}-missing"]
            assert refused is not None and refused.code is ErrorCode.NON_EMPTY_GROUP
            assert "stop them" in str(refused)
            assert missing is not None and missing.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert admin.delete_groups([group]) == {group: None}
        assert group not in {listed.group_id for listed in admin.list_groups()}


def test_offsets_are_listed_altered_and_deleted(server: Server, admin: Admin, topic: str, group: str) -> None:
    make_topic(server, topic)
    produce(server, topic, 10)
    with admin:
        assert admin.alter_offsets(group, {(topic, 0): 3, (topic, 1): 4}) == {(topic, 0): None, (topic, 1): None}
        listed = admin.list_offsets(group)
        assert {where: stored.offset for where, stored in listed.items()} == {(topic, 0): 3, (topic, 1): 4}
        assert committed(server, group, topic) == {0: 3, 1: 4}
        assert admin.list_offsets(group, [(topic, 3)]) == {}

        assert admin.delete_offsets(group, [(topic, 0)]) == {(topic, 0): None}
        assert committed(server, group, topic) == {1: 4}


def test_offsets_of_a_group_at_work_are_not_altered(server: Server, admin: Admin, topic: str, group: str) -> None:
    make_topic(server, topic)
    one = Watched(server, group).subscribe(topic)
    with admin, watching(one):
        poll_until(lambda: len(one.partitions) == 4, "a member", one)
        errors = admin.alter_offsets(group, {(topic, 0): 3})
        error = errors[topic, 0]
        assert error is not None and error.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert "stop them" in str(error)
        deleted = admin.delete_offsets(group, [(topic, 0)])[topic, 0]
        assert deleted is not None and deleted.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 10),
        ({"to": 4}, 4),
        ({"to": 400}, 10),
        ({"shift_by": -2}, 3),
        ({"shift_by": 100}, 10),
        ({"shift_by": -100}, 0),
        ({"to_time_ms": 1}, 0),
        ({"to_time_ms": "later"}, 10),
    ],
)
def test_offsets_are_reset(
    server: Server, admin: Admin, topic: str, group: str, how: dict[str, object], expected: int
) -> None:
    if how.get("to_time_ms") == "later":
        how = {"to_time_ms": int(time.time() * 1000) + 3_600_000}
    make_topic(server, topic, 2)
    produce(server, topic, 10, partitions=2)
    with admin:
        admin.alter_offsets(group, {(topic, 0): 5, (topic, 1): 5})

        planned = admin.reset_offsets(group, dry_run=True, **how)  # type: ignore[arg-type]
        assert committed(server, group, topic) == {0: 5, 1: 5}
        done = admin.reset_offsets(group, [topic], **how)  # type: ignore[arg-type]

        assert planned == done
        assert {where: (one.before, one.after) for where, one in done.items()} == {
            (topic, 0): (5, expected),
            (topic, 1): (5, expected),
        }
        assert committed(server, group, topic) == {0: expected, 1: expected}


def test_a_reset_that_cannot_be_says_why(server: Server, admin: Admin, topic: str, group: str) -> None:
    with admin:
        with pytest.raises(ConfigError, match="exactly one"):
            admin.reset_offsets(group, [topic])
        with pytest.raises(GroupError, match="committed to no topic"):
            admin.reset_offsets(group, to="earliest")
        with pytest.raises(TopicError, match=topic):
            admin.reset_offsets(group, [topic], to="earliest", timeout=10)
        make_topic(server, topic)
        with pytest.raises(GroupError, match="no offset of"):
            admin.reset_offsets(group, [topic], shift_by=1)


def test_settings_that_are_not_an_admins_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'group\.id'"):
        Admin({"bootstrap.servers": "localhost:1", "group.id": "g"})
