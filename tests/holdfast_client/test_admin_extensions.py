"""`Admin` beyond Kafka: registered members and standbys; and the errors on Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import Admin
from holdfast.client.descriptions import GroupConfig, GroupExtensionsDescription
from holdfast.client.errors import GroupError, UnsupportedVersion
from holdfast.wire.error_codes import ErrorCode
from tests.client_compat.servers import Server
from tests.groups.topics import make_topic
from tests.holdfast_client.consumers import Watched, evenly_assigned, poll_until, watching
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

FIVE_MINUTES_MS = 300_000


@pytest.fixture
def admin(quick_holdfast: HoldfastBroker) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": quick_holdfast.bootstrap}) as admin:
        yield admin


def extensions(admin: Admin, group: str) -> GroupExtensionsDescription:
    found = admin.describe_group(group).extensions
    assert found is not None
    return found


def arrived(admin: Admin, group: str) -> list[str]:
    return [one.instance_id for one in extensions(admin, group).expected if one.arrived]


@pytest.fixture
def worker(quick_holdfast: HoldfastBroker, topic: str, group: str) -> Iterator[Watched]:
    """A static member with all four partitions."""
    make_topic(quick_holdfast, topic)
    one = Watched(quick_holdfast, group, group_instance_id="instance-0").subscribe(topic)
    with watching(one):
        poll_until(lambda: len(one.partitions) == 4, "a member", one)
        yield one


@pytest.mark.parametrize(("registered", "rebalances"), [(True, 1), (False, 2)])
def test_registered_members_need_one_rebalance_and_others_one_each(
    quick_holdfast: HoldfastBroker,
    admin: Admin,
    worker: Watched,
    topic: str,
    group: str,
    registered: bool,
    rebalances: int,
) -> None:
    before = extensions(admin, group)
    if registered:
        results = admin.add_members(group, ["instance-0", "instance-1", "instance-2"])
        assert [str(one.outcome) for one in results] == ["already a member", "registered", "registered"]

    first = Watched(quick_holdfast, group, group_instance_id="instance-1").subscribe(topic)
    with watching(first):
        if registered:
            poll_until(lambda: arrived(admin, group) == ["instance-1"], "the first has come", worker, first)
            (waiting,) = [one for one in admin.describe_group(group).members if one.is_standby]
            meanwhile = extensions(admin, group)
            assert waiting.group_instance_id == "instance-1"
            assert tuple(meanwhile.standbys) == (waiting.member_id,)
            assert (meanwhile.generation, meanwhile.epoch) == (before.generation, before.epoch)
            assert worker.callbacks == [("on_assign", [0, 1, 2, 3])], "nobody is disturbed"
        else:
            poll_until(evenly_assigned(4, worker, first), "the first takes part at once", worker, first)
        second = Watched(quick_holdfast, group, group_instance_id="instance-2").subscribe(topic)
        with watching(second):
            poll_until(evenly_assigned(4, worker, first, second), "all take part", worker, first, second)
            after = extensions(admin, group)
            assert after.generation - before.generation == rebalances
            assert after.epoch >= after.generation * 1_000_000 > before.epoch
            assert (after.standbys, after.expected) == ((), ())


def test_a_registration_is_described_renewed_and_cancelled(admin: Admin, group: str) -> None:
    asked_at_ms = int(time.time() * 1000)
    registered = admin.add_members(group, ["a", "b"])
    assert [(one.instance_id, str(one.outcome)) for one in registered] == [("a", "registered"), ("b", "registered")]
    assert admin.describe_group(group).state == "Empty", "a group that has no members yet"
    one, other = extensions(admin, group).expected
    assert (one.instance_id, one.arrived, other.instance_id) == ("a", False, "b")
    assert FIVE_MINUTES_MS <= one.deadline_ms - asked_at_ms < FIVE_MINUTES_MS + 60_000

    (renewed,) = admin.add_members(group, ["a"], wait_ms=2 * FIVE_MINUTES_MS)
    assert str(renewed.outcome) == "renewed"
    deadlines = {one.instance_id: one.deadline_ms for one in extensions(admin, group).expected}
    assert deadlines["a"] - asked_at_ms >= 2 * FIVE_MINUTES_MS
    assert deadlines["b"] == other.deadline_ms

    results = {one.instance_id: one.error for one in admin.cancel_registration(group, ["a", "c"])}
    assert results["a"] is None
    assert results["c"] is not None and results["c"].code is ErrorCode.UNKNOWN_MEMBER_ID
    assert [one.instance_id for one in extensions(admin, group).expected] == ["b"]
    assert [one.instance_id for one in admin.cancel_registration(group)] == ["b"]
    assert admin.describe_group(group).state == "Dead", "nothing is left of a group that was only registered"


def test_a_refused_registration_names_the_reason(admin: Admin, group: str) -> None:
    results = admin.add_members(group, ["a", "a", "", "x" * 1_001])
    assert [str(one.outcome) for one in results] == ["registered", "refused", "refused", "refused"]
    assert {one.error.code for one in results if one.error is not None} == {ErrorCode.INVALID_REQUEST}
    assert [one.instance_id for one in extensions(admin, group).expected] == ["a"]

    with pytest.raises(GroupError, match="INVALID_REQUEST"):
        admin.add_members(group, ["b"], wait_ms=8 * 24 * 3_600_000)
    with pytest.raises(GroupError, match="INVALID_GROUP_ID"):
        admin.add_members("", ["b"])
    with pytest.raises(GroupError, match="GROUP_ID_NOT_FOUND"):
        admin.cancel_registration(f"{group}-missing")


def test_a_member_past_the_target_size_is_a_standby_until_there_is_room(
    quick_holdfast: HoldfastBroker, admin: Admin, worker: Watched, topic: str, group: str
) -> None:
    before = extensions(admin, group).generation
    admin.configure_group(group, {"target.group.size": 1, "standby.takeover.ms": 5_000})
    found = extensions(admin, group)
    assert (found.target_size, found.standby_takeover_ms) == (1, 5_000)

    spare = Watched(quick_holdfast, group).subscribe(topic)
    with watching(spare):
        poll_until(lambda: extensions(admin, group).standbys, "a standby", worker, spare)
        assert [one.is_standby for one in admin.describe_group(group).members if one.group_instance_id is None] == [
            True
        ]
        assert (extensions(admin, group).generation, worker.callbacks) == (before, [("on_assign", [0, 1, 2, 3])])

        admin.configure_group(group, {"target.group.size": None})
        poll_until(evenly_assigned(4, worker, spare), "the standby takes part", worker, spare)
        assert (extensions(admin, group).target_size, extensions(admin, group).standbys) == (None, ())


def test_a_standby_takes_over_and_the_ledger_names_both_members(
    quick_holdfast: HoldfastBroker, admin: Admin, worker: Watched, topic: str, group: str
) -> None:
    admin.configure_group(group, {"target.group.size": 1})
    before = extensions(admin, group)
    spare = Watched(quick_holdfast, group, group_instance_id="spare").subscribe(topic)
    with watching(spare):
        poll_until(lambda: extensions(admin, group).standbys, "a standby", worker, spare)
        gone = worker.consumer.memberid()
        worker.consumer.close()
        assert [one.error for one in admin.remove_members(group, instance_ids=["instance-0"])] == [None]
        poll_until(lambda: len(spare.partitions) == 4, "the standby has taken over", spare)
        after = extensions(admin, group)
        assert (after.generation, after.vacancies) == (before.generation, 0)
        assert after.epoch > before.epoch

        def swap() -> list[Any]:
            return [one for one in admin.history([group]) if one.kind == "standby took over"]

        eventually(swap, "the event")
        (found,) = swap()
        assert (found.member, found.previous_member, found.epoch) == ("spare", gone, after.epoch)


def test_configs_are_described_with_what_was_set(admin: Admin, group: str) -> None:
    assert admin.group_config(group) == {
        "standby.takeover.ms": GroupConfig("-1", True),
        "target.group.size": GroupConfig("0", True),
    }
    admin.configure_group(group, {"target.group.size": 3, "standby.takeover.ms": "2000"})
    assert admin.group_config(group) == {
        "standby.takeover.ms": GroupConfig("2000", False),
        "target.group.size": GroupConfig("3", False),
    }
    admin.configure_group(group, {"standby.takeover.ms": None})
    assert admin.group_config(group)["standby.takeover.ms"] == GroupConfig("-1", True)


@pytest.mark.parametrize("changes", [{"x": 1}, {"target.group.size": "many"}, {"standby.takeover.ms": 0}])
def test_a_config_that_cannot_be_is_refused_with_all_that_came_with_it(
    admin: Admin, group: str, changes: dict[str, Any]
) -> None:
    possible = {"target.group.size": 2} if "target.group.size" not in changes else {"standby.takeover.ms": 1}
    with pytest.raises(GroupError, match="INVALID_CONFIG"):
        admin.configure_group(group, possible | changes)
    assert all(one.is_default for one in admin.group_config(group).values())


# -- Apache Kafka ------------------------------------------------------------------------------------------------------

ASKED_OF_A_HOLDFAST: dict[str, Callable[[Admin, str], Any]] = {
    "AddMembersToGroup (API key 10000)": lambda admin, group: admin.add_members(group, ["a"]),
    "CancelRegistration (API key 10001)": lambda admin, group: admin.cancel_registration(group),
    "hot standbys": lambda admin, group: admin.configure_group(group, {"target.group.size": 3}),
}


@pytest.mark.real
@pytest.mark.timeout(300)
def test_apache_kafka_has_none_of_it_and_the_feature_is_named_at_once(quick_kafka: Server, group: str) -> None:
    with Admin({"bootstrap.servers": quick_kafka.bootstrap}) as admin:
        admin.group_config(group)  # it is up
        for feature, ask in ASKED_OF_A_HOLDFAST.items():
            began = time.monotonic()
            with pytest.raises(UnsupportedVersion) as said:
                ask(admin, group)
            assert f"Holdfast's {feature}, which the broker at {quick_kafka.bootstrap} does not have" in str(said.value)
            assert time.monotonic() - began < 20, "there is nothing to wait for, or it would be a minute"
        assert admin.describe_group(group).extensions is None


@pytest.mark.real
@pytest.mark.timeout(300)
def test_apache_kafkas_own_group_configs_are_set_and_described(quick_kafka: Server, group: str) -> None:
    name = "consumer.session.timeout.ms"
    with Admin({"bootstrap.servers": quick_kafka.bootstrap}) as admin:
        default = admin.group_config(group)[name]
        assert default.is_default
        admin.configure_group(group, {name: 50_000})
        eventually(lambda: admin.group_config(group)[name] == GroupConfig("50000", False), "it is set")
        admin.configure_group(group, {name: None})
        eventually(lambda: admin.group_config(group)[name] == default, "it is back at its default")
        with pytest.raises(GroupError, match="INVALID_CONFIG"):
            admin.configure_group(group, {"x": 1})
