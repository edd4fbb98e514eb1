"""What members do beyond Kafka, on Holdfast; and that on Apache Kafka they do and say nothing of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Admin, Member, Pool, SingleWriter, WorkerPool
from holdfast.assignors import CooperativeStickyAssignor
from holdfast.assignors.interface import Cluster, MemberAssignment, MemberSubscription
from holdfast.client import join_batcher
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.errors import AssignorError
from holdfast.client.runtime import SYSTEM
from holdfast.client.settings import NetworkSettings
from holdfast.client.subscription import Subscription as Topics
from holdfast.coordinator.events.causes import CauseCode
from holdfast.spark.group_members import QueryMembers
from holdfast.spark.partition_state import PartitionState
from holdfast.wire.apis.describe_groups import DESCRIBE_GROUPS
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupRequestProtocol
from holdfast.wire.apis.join_groups import JOIN_GROUPS, JoinGroupsMember, JoinGroupsRequest
from holdfast.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from holdfast.wire.error_codes import ErrorCode
from tests.client_compat.servers import Server
from tests.groups.topics import ledger, make_topic
from tests.holdfast_client.consumers import PATIENCE_S, Watched, evenly_assigned, grow_topic, poll_until, watching
from tests.holdfast_client.consumers import QUICK as QUICK_MEMBERS
from tests.holdfast_client.recording_proxy import RecordingProxy
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import QUICK

ATTENTIVE: dict[str, Any] = {"metadata_max_age_ms": 100, "metadata_rebalance_min_interval_ms": 100}
"""The leader sees soon that a topic has grown."""


@dataclass(frozen=True)
class Recorded:
    """A broker whose clients all come through a wire that remembers what they say."""

    broker: Server
    wire: RecordingProxy

    @property
    def bootstrap(self) -> str:
        return self.wire.bootstrap


@pytest.fixture(scope="module")
def holdfast() -> Iterator[Recorded]:
    with RecordingProxy() as wire, HoldfastBroker(advertising(wire)) as broker:
        wire.forward_to(broker.address)
        yield Recorded(broker, wire)


@pytest.fixture(scope="module")
def kafka(apache_kafka_distribution: object) -> Iterator[Recorded]:
    with RecordingProxy() as wire, ApacheKafka(advertising(wire)) as broker:
        wire.forward_to(broker.address)
        yield Recorded(broker, wire)


def advertising(wire: RecordingProxy) -> dict[str, str]:
    return QUICK | {"advertised.listeners": f"PLAINTEXT://{wire.bootstrap}"}


def watched(recorded: Recorded, group: str, strategy: Any, **settings: Any) -> Watched:
    return Watched(recorded, group, partition_assignment_strategy=strategy, **ATTENTIVE, **settings)  # type: ignore[arg-type]


def kinds(recorded: Recorded, group: str) -> list[str]:
    return [event["kind"] for event in ledger(recorded.broker, group)]


# -- a topic grows -----------------------------------------------------------------------------------------------------


def grow(recorded: Recorded, topic: str, *members: Watched) -> list[str]:
    """From four partitions to ten; the kinds of its events in the ledger."""
    poll_until(evenly_assigned(4, *members), "four are shared", *members)
    group = members[0].consumer._config.membership.group_id
    before = len(kinds(recorded, group))
    for one in members:
        one.callbacks.clear()
    grow_topic(recorded.broker, topic, 10)
    poll_until(evenly_assigned(10, *members), "ten are shared", *members)
    return kinds(recorded, group)[before:]


def test_partitions_are_added_without_a_rebalance_or_a_revocation(holdfast: Recorded, topic: str, group: str) -> None:
    # given a cooperative group of three
    make_topic(holdfast.broker, topic)
    members = [watched(holdfast, group, "cooperative-sticky").subscribe(topic) for _ in range(3)]
    with watching(*members):
        poll_until(evenly_assigned(4, *members), "four are shared", *members)
        generation = members[0].consumer.generation()
        epochs = [one.consumer.assignment_epoch for one in members]

        # when its topic grows
        kinds = grow(holdfast, topic, *members)

        # then the assignments grow, and the group stays as it is
        assert "rebalance started" not in kinds
        assert kinds.count("resynced") == 1
        assert {one.consumer.generation() for one in members} == {generation}
        assert {name for one in members for name, _ in one.callbacks} == {"on_assign"}
        for one, epoch in zip(members, epochs, strict=True):
            assert epoch is not None and one.consumer.assignment_epoch == epoch + 1


def test_control_a_group_led_by_range_rebalances(holdfast: Recorded, topic: str, group: str) -> None:
    """It moves partitions from one member to the next, and that takes a rebalance."""
    make_topic(holdfast.broker, topic)
    members = [watched(holdfast, group, "range").subscribe(topic) for _ in range(3)]
    with watching(*members):
        kinds = grow(holdfast, topic, *members)

        assert kinds.count("rebalance started") == 1
        assert "resynced" not in kinds
        assert "on_revoke" in {name for one in members for name, _ in one.callbacks}


def test_in_an_eager_group_the_leader_gains_and_rejoining_members_start_over(
    holdfast: Recorded, topic: str, group: str
) -> None:
    make_topic(holdfast.broker, topic)
    members = [watched(holdfast, group, "sticky").subscribe(topic) for _ in range(2)]
    with watching(*members):
        kinds = grow(holdfast, topic, *members)

        assert "rebalance started" not in kinds and kinds.count("rejoin requested") == 1
        callbacks = sorted([name for name, _ in one.callbacks] for one in members)
        assert callbacks == [["on_assign"], ["on_revoke", "on_assign"]]


def test_the_epoch_rises_with_every_rebalance_and_every_resync(holdfast: Recorded, topic: str, group: str) -> None:
    make_topic(holdfast.broker, topic)
    first, second = (watched(holdfast, group, "cooperative-sticky") for _ in range(2))
    epochs: list[int | None] = []
    with watching(first, second):
        first.subscribe(topic)
        poll_until(evenly_assigned(4, first), "all of them", first)
        epochs.append(first.consumer.assignment_epoch)

        grow_topic(holdfast.broker, topic, 5)
        poll_until(evenly_assigned(5, first), "a resync", first)
        epochs.append(first.consumer.assignment_epoch)

        second.subscribe(topic)
        poll_until(evenly_assigned(5, first, second), "a rebalance", first, second)
        epochs.append(first.consumer.assignment_epoch)

        grow_topic(holdfast.broker, topic, 8)
        poll_until(evenly_assigned(8, first, second), "a resync", first, second)
        epochs.append(first.consumer.assignment_epoch)

    known = [epoch for epoch in epochs if epoch is not None]
    assert len(known) == 4 and known == sorted(set(known))
    assert [epoch % 1_000_000 for epoch in known] == [0, 1, 0, 1]


# -- the assignor fails ------------------------------------------------------------------------------------------------


SLOW_TO_FAIL_AGAIN = {"retry.backoff.ms": 5_000, "retry.backoff.max.ms": 20_000}
"""Twelve seconds and more until the third failure, in which another can join."""


def dotless(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}


def has_failed(recorded: Recorded, group: str) -> bool:
    return any(one.failure is not None for one in recorded.wire.requests(SYNC_GROUP, group))


class Failing(CooperativeStickyAssignor):
    def assign(
        self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        raise KeyError("a mistake in this member's assignor")


def test_if_the_leaders_assignor_fails_the_other_member_leads(holdfast: Recorded, topic: str, group: str) -> None:
    # given a member that cannot assign, and leads because it came first
    make_topic(holdfast.broker, topic)
    failing = watched(holdfast, group, [Failing()], **dotless(SLOW_TO_FAIL_AGAIN))
    healthy = watched(holdfast, group, "cooperative-sticky")
    with watching(failing, healthy):
        failing.subscribe(topic)
        poll_until(lambda: has_failed(holdfast, group), "the failure is in the ledger", failing)

        # when another joins
        healthy.subscribe(topic)

        # then that one leads, and both have their assignments
        poll_until(evenly_assigned(4, failing, healthy), "both have two", failing, healthy)
        failed = [one for one in ledger(holdfast.broker, group) if one["kind"] == "assignment failed"]
        assert all("a mistake in this member's assignor" in one["cause_detail"] for one in failed)
        assert "member left" not in kinds(holdfast, group)


def test_a_member_that_is_alone_with_a_failing_assignor_gives_up(holdfast: Recorded, topic: str, group: str) -> None:
    make_topic(holdfast.broker, topic)
    failing = watched(holdfast, group, [Failing()]).subscribe(topic)
    with watching(failing):
        with pytest.raises(AssignorError, match="a mistake in this member's assignor"):
            poll_until(lambda: False, "an error", failing)

        assert kinds(holdfast, group).count("assignment failed") == 3
        eventually(lambda: "member left" in kinds(holdfast, group), "it leaves")


def test_a_static_leader_that_gives_up_does_not_let_the_other_wait_for_its_session(
    holdfast: Recorded, topic: str, group: str
) -> None:
    # given two static members that cannot assign, and sessions longer than this test
    make_topic(holdfast.broker, topic)
    members = [
        watched(holdfast, group, [Failing()], group_instance_id=f"instance-{number}", session_timeout_ms=300_000)
        for number in (1, 2)
    ]
    with watching(*members):
        for one in members:
            one.subscribe(topic)

        # when both are polled until they give up
        gone: list[Watched] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(gone) < 2:
            assert time.monotonic() < deadline, f"{len(gone)} of 2 have given up: {kinds(holdfast, group)}"
            for one in (one for one in members if one not in gone):
                try:
                    one.poll()
                except AssignorError:
                    gone.append(one)

        # then each reported its last failure as well, and left
        events = ledger(holdfast.broker, group)
        failed = [one["instance_id"] for one in events if one["kind"] == "assignment failed"]
        assert {name: failed.count(name) for name in failed} == {"instance-1": 3, "instance-2": 3}
        eventually(lambda: kinds(holdfast, group).count("member left") == 2, "both leave")
        assert "session expired" not in kinds(holdfast, group)


def test_where_a_member_of_another_kind_fails_to_assign_the_other_does(holdfast: Recorded, group: str) -> None:
    def fails(_members: Any) -> dict[str, Any]:
        raise KeyError("a mistake in assign")

    def assign(members: Any) -> dict[str, Any]:
        return {one.member_id: "work" for one in members}

    config = {"bootstrap.servers": holdfast.bootstrap, "group.id": group}
    with Member(config | SLOW_TO_FAIL_AGAIN, "shards", {"p": {}}, fails) as failing:
        eventually(lambda: has_failed(holdfast, group), "the failure is in the ledger")
        with Member(config, "shards", {"p": {}}, assign) as healthy:
            given, other = failing.wait_for_assignment(60), healthy.wait_for_assignment(60)

            assert (given.state, given.is_leader, other.is_leader) == ("work", False, True)
            assert given.assignment_epoch == other.assignment_epoch == given.generation * 1_000_000


def test_workers_and_writers_have_the_epoch_as_well(holdfast: Recorded, group: str) -> None:
    def run(_task: str, stopping: threading.Event) -> None:
        stopping.wait()

    def config(name: str) -> dict[str, Any]:
        return {"bootstrap.servers": holdfast.bootstrap, "group.id": f"{group}-{name}"}

    with SingleWriter(config("writer")) as writer, WorkerPool(config("workers"), ["a"], run) as workers:
        assert writer.wait_until_active(60) * 1_000_000 == writer.assignment_epoch
        eventually(lambda: workers.running == ["a"], "the task runs")
        assert workers.assignment_epoch == 1_000_000


# -- joining together --------------------------------------------------------------------------------------------------


def pool_config(recorded: Recorded, group: str, **settings: Any) -> dict[str, Any]:
    return {"bootstrap.servers": recorded.bootstrap, "group.id": group, **QUICK_MEMBERS, **settings}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, all members come together."""
    monkeypatch.setattr(join_batcher, "EXPECTED_TIMEOUT_S", 30.0)


def assigned(pool: Pool, partitions: int) -> Callable[[], bool]:
    def holds() -> bool:
        pool.check()
        return sum(len(one.assignment()) for one in pool.consumers) == partitions

    return holds


@pytest.mark.usefixtures("patient")
def test_a_pool_of_static_members_joins_in_one_request(holdfast: Recorded, topic: str, group: str) -> None:
    make_topic(holdfast.broker, topic)
    with Pool(pool_config(holdfast, group, **{"group.instance.id": "app"}), 4) as pool:
        pool.start([topic], lambda _consumer, _message: None)
        eventually(assigned(pool, 4), "every member has an assignment")

    (request,) = holdfast.wire.requests(JOIN_GROUPS, group)
    assert sorted(one.group_instance_id for one in request.members) == sorted(pool.instance_ids)
    assert holdfast.wire.requests(JOIN_GROUP, group) == []
    assert kinds(holdfast, group).count("generation formed") == 1


@pytest.mark.usefixtures("patient")
def test_a_pool_of_dynamic_members_joins_with_two_requests(holdfast: Recorded, topic: str, group: str) -> None:
    make_topic(holdfast.broker, topic)
    with Pool(pool_config(holdfast, group), 3) as pool:
        pool.start([topic], lambda _consumer, _message: None)
        eventually(assigned(pool, 4), "every member has an assignment")

        nameless, named = holdfast.wire.requests(JOIN_GROUPS, group)
        assert [one.member_id for one in nameless.members] == ["", "", ""]
        assert len({one.member_id for one in named.members}) == 3
        assert kinds(holdfast, group).count("generation formed") == 1


@pytest.mark.usefixtures("patient")
def test_the_members_of_a_query_join_in_one_request(holdfast: Recorded, topic: str, group: str) -> None:
    make_topic(holdfast.broker, topic)
    configs = [
        ConsumerConfig.read(pool_config(holdfast, group, **{"group.instance.id": f"query-thread-{number}"}), {})
        for number in (1, 2, 3)
    ]
    members = QueryMembers(
        configs, PartitionState(), lambda _network, unknown, _deadline: dict.fromkeys(unknown, 0), 1.0
    )
    try:
        members.join(Topics.parse([topic]))
        assert members.wait_until_settled(60)
    finally:
        members.close()

    (request,) = holdfast.wire.requests(JOIN_GROUPS, group)
    assert len(request.members) == 3
    assert holdfast.wire.requests(JOIN_GROUP, group) == []


@pytest.mark.usefixtures("patient")
def test_a_pool_that_returns_with_the_same_instance_ids_causes_no_rebalance(
    holdfast: Recorded, topic: str, group: str
) -> None:
    make_topic(holdfast.broker, topic)
    config = pool_config(holdfast, group, **{"group.instance.id": "app"})
    for _ in range(2):
        with Pool(config, 3) as pool:
            pool.start([topic], lambda _consumer, _message: None)
            eventually(assigned(pool, 4), "every member has an assignment")

    assert len(holdfast.wire.requests(JOIN_GROUPS, group)) == 2
    assert kinds(holdfast, group).count("rebalance started") == 1


@pytest.mark.usefixtures("patient")
def test_a_registered_pool_is_admitted_at_once(holdfast: Recorded, topic: str, group: str) -> None:
    """All but the last of its members become standbys, and no other member notices: their responses go out with
    the last one's. They waited for each other, for as long as the rebalance timeout of five minutes."""
    # given a member at work, and a pool whose members are registered
    make_topic(holdfast.broker, topic)
    member = watched(holdfast, group, "range").subscribe(topic)
    with (
        watching(member),
        Pool(pool_config(holdfast, group, **{"group.instance.id": "app"}), 3) as pool,
        Admin({"bootstrap.servers": holdfast.bootstrap}) as admin,
    ):
        poll_until(evenly_assigned(4, member), "it has everything", member)
        admin.add_members(group, pool.instance_ids)

        # when the pool starts
        pool.start([topic], lambda _consumer, _message: None)
        poll_until(assigned(pool, 3), "every member of the pool has an assignment", member)
        # The pool's threads may have theirs before this one has come for its own.
        poll_until(lambda: len(member.partitions) == 1, "and so has the member", member)

        # then one rebalance has taken all of it in
        assert len(holdfast.wire.requests(JOIN_GROUPS, group)) == 1
        assert kinds(holdfast, group).count("generation formed") == 2


def test_a_batch_with_known_and_new_instance_ids_does_not_wait_for_itself(holdfast: Recorded, group: str) -> None:
    """The known ones could be answered at once; then the rebalance for the new one would wait for them, and they for
    the answer to all of them."""
    # given three static members
    with ClusterClient(
        NetworkSettings.from_config({"bootstrap.servers": holdfast.bootstrap}), runtime=SYSTEM
    ) as network:
        connection = network.coordinator(group)
        first = connection.ask(together(group, "a", "b", "c"))
        assignments = [SyncGroupRequestAssignment(one.member_id, one.member_id.encode()) for one in first.results]
        for one in sorted(first.results, key=lambda one: one.member_id != one.leader):
            identity = {"member_id": one.member_id, "group_instance_id": one.member_id[0], "protocol_name": "p"}
            request = SyncGroupRequest(group, 1, protocol_type="consumer", assignments=assignments, **identity)
            assert connection.ask(request, version=5).error_code == ErrorCode.NONE

        # when they come back with a fourth
        second = connection.ask(together(group, "a", "b", "c", "d"), time.monotonic() + 20)

    # then all four are in the next generation, long before the rebalance timeout
    assert [(one.error_code, one.generation_id) for one in second.results] == [(0, 2)] * 4


def together(group: str, *instance_ids: str) -> JoinGroupsRequest:
    protocols = [JoinGroupRequestProtocol("p", encode_subscription(Subscription(["t"])))]
    members = [JoinGroupsMember("", instance_id, protocols) for instance_id in instance_ids]
    return JoinGroupsRequest(group, 60_000, 300_000, "consumer", members)


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_a_leader_asked_to_rejoin_after_a_broker_restart_still_watches_its_topics(topic: str, group: str) -> None:
    # given a leader whose own assignment grew without a rebalance
    with RecordingProxy() as wire, HoldfastBroker(advertising(wire)) as broker:
        wire.forward_to(broker.address)
        make_topic(broker, topic, 2)
        member = watched(Recorded(broker, wire), group, "cooperative-sticky")
        with watching(member.subscribe(topic)):
            poll_until(evenly_assigned(2, member), "two", member)
            grow_topic(broker, topic, 4)
            poll_until(evenly_assigned(4, member), "four", member)
            generation = member.consumer.generation()

            # when the broker is killed, and asks it to rejoin because it may not have its assignment
            synced = len(wire.requests(SYNC_GROUP, group))
            broker.kill()
            broker.start()
            again = CauseCode.ASSIGNMENT_CHANGED_BEFORE_RELOAD
            poll_until(
                lambda: again in [one["cause_code"] for one in ledger(broker, group)], "it is asked to rejoin", member
            )
            # and it has come: a topic that grows before that is an ordinary rebalance
            poll_until(lambda: len(wire.requests(SYNC_GROUP, group)) > synced, "it syncs again", member)
            poll_until(lambda: not wire.has_unanswered(SYNC_GROUP.key, since=0.0), "and has it", member)

            # then it goes on as before, and sees the next growth
            grow_topic(broker, topic, 6)
            poll_until(evenly_assigned(6, member), "six", member)
            assert member.consumer.generation() == generation


# -- Apache Kafka ------------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("patient")
def test_apache_kafka_gets_no_extension_request(kafka: Recorded, topic: str, group: str) -> None:
    make_topic(kafka.broker, topic)

    # when a pool joins
    with Pool(pool_config(kafka, f"{group}-pool", **{"group.instance.id": "app"}), 2) as pool:
        pool.start([topic], lambda _consumer, _message: None)
        eventually(assigned(pool, 4), "every member has an assignment")

    # and a topic grows under a leader of ours
    members = [watched(kafka, group, "cooperative-sticky").subscribe(topic) for _ in range(2)]
    with watching(*members):
        poll_until(evenly_assigned(4, *members), "four are shared", *members)
        generation = members[0].consumer.generation()
        grow_topic(kafka.broker, topic, 6)
        poll_until(evenly_assigned(6, *members), "six are shared", *members)
        assert members[0].consumer.generation() > generation
        assert {one.consumer.assignment_epoch for one in members} == {None}

    # and an assignor fails
    failing = watched(kafka, f"{group}-failing", [Failing()]).subscribe(topic)
    with watching(failing), pytest.raises(AssignorError, match="a mistake in this member's assignor"):
        poll_until(lambda: False, "an error", failing)

    # then it got the requests that any broker gets
    assert kafka.wire.keys_of_our_own == []
    assert len(kafka.wire.requests(JOIN_GROUP, f"{group}-pool")) >= 2
    syncs = [one for name in (group, f"{group}-pool") for one in kafka.wire.requests(SYNC_GROUP, name)]
    assert syncs
    assert {(one.wants_epoch, one.resync_from_epoch, one.failure) for one in syncs} == {(False, -1, None)}
    assert kafka.wire.requests(SYNC_GROUP, f"{group}-failing") == []
    assert not any(one.include_extensions for one in kafka.wire.requests(DESCRIBE_GROUPS, group))
