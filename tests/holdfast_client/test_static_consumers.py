"""Static membership as KIP-345 means it, on both servers: members keep their partitions through a restart."""

from __future__ import annotations

import pytest

from holdfast import Admin, Consumer, Pool
from holdfast.client.errors import CommitFailed, ConfigError, FencedInstanceId
from tests.client_compat.servers import Server
from tests.groups.topics import committed, make_topic, produce
from tests.holdfast_client.consumers import Watched, evenly_assigned, grow_topic, poll_until, watching
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually


def generation_of(one: Watched) -> int:
    return one.consumer.generation()


def test_a_restarted_static_consumer_gets_its_assignment_back_without_a_rebalance(
    server: Server, topic: str, group: str
) -> None:
    make_topic(server, topic)
    bystander = Watched(server, group, group_instance_id="stays").subscribe(topic)
    with watching(bystander):
        before = Watched(server, group, group_instance_id="restarts").subscribe(topic)
        with watching(before):
            poll_until(evenly_assigned(4, bystander, before), "both have two", bystander, before)
            had, generation = before.partitions, generation_of(bystander)
        bystander.callbacks.clear()

        after = Watched(server, group, group_instance_id="restarts").subscribe(topic)
        with watching(after):
            poll_until(lambda: after.partitions == had, "its old partitions", bystander, after)
            poll_until(lambda: len(bystander.consumer.consume(1, 0.5)) == 0, "half a second", after)
            assert generation_of(after) == generation == generation_of(bystander)
            assert bystander.callbacks == [], "no other member got a callback"


def test_control_a_restarted_dynamic_consumer_makes_all_members_rebalance(
    server: Server, topic: str, group: str
) -> None:
    make_topic(server, topic)
    bystander = Watched(server, group).subscribe(topic)
    with watching(bystander):
        before = Watched(server, group).subscribe(topic)
        with watching(before):
            poll_until(evenly_assigned(4, bystander, before), "both have two", bystander, before)
            generation = generation_of(bystander)
        after = Watched(server, group).subscribe(topic)
        with watching(after):
            poll_until(evenly_assigned(4, bystander, after), "both have two again", bystander, after)
            assert generation_of(bystander) > generation


def test_a_restarted_static_leader_keeps_leading_without_reassigning(server: Server, topic: str, group: str) -> None:
    make_topic(server, topic)
    leader = Watched(server, group, group_instance_id="leads").subscribe(topic)
    with watching(leader):
        poll_until(lambda: len(leader.partitions) == 4, "a leader", leader)
        follower = Watched(server, group, group_instance_id="follows").subscribe(topic)
        with watching(follower):
            poll_until(evenly_assigned(4, leader, follower), "both have two", leader, follower)
            generation = generation_of(follower)
            had = leader.partitions
            leader.consumer.close()

            quick = {"metadata_max_age_ms": 200, "metadata_rebalance_min_interval_ms": 200}
            again = Watched(server, group, group_instance_id="leads", **quick).subscribe(topic)
            with watching(again):
                poll_until(lambda: again.partitions == had, "its old partitions", again, follower)
                assert generation_of(again) == generation
                # It watches the topics of the group although it did not assign them.
                grow_topic(server, topic, 6)
                poll_until(evenly_assigned(6, again, follower), "the new partitions too", again, follower)


def test_a_restarted_leader_watches_a_topic_that_only_a_follower_reads(server: Server, topic: str, group: str) -> None:
    theirs = f"{topic}-theirs"
    make_topic(server, topic, 1)
    make_topic(server, theirs, 2)
    quick = {"metadata_max_age_ms": 200, "metadata_rebalance_min_interval_ms": 200}
    leader = Watched(server, group, group_instance_id="leads", **quick).subscribe(topic)
    with watching(leader):
        poll_until(lambda: leader.partitions == [0], "a leader", leader)
        follower = Watched(server, group, group_instance_id="follows").subscribe(theirs)
        with watching(follower):
            poll_until(lambda: follower.partitions == [0, 1], "the other topic for the other member", leader, follower)
            generation = generation_of(follower)
            leader.consumer.close()
            again = Watched(server, group, group_instance_id="leads", **quick).subscribe(topic)
            with watching(again):
                poll_until(lambda: again.partitions == [0], "its old partition", again, follower)
                assert generation_of(again) == generation

                grow_topic(server, theirs, 4)
                poll_until(lambda: sorted(follower.partitions) == [0, 1, 2, 3], "the new partitions", again, follower)


def test_partitions_that_came_while_the_leader_was_down_are_found_when_it_is_back(
    server: Server, topic: str, group: str
) -> None:
    """Kafka's own client does not notice them: KIP-814 accepts that."""
    make_topic(server, topic)
    leader = Watched(server, group, group_instance_id="leads").subscribe(topic)
    with watching(leader):
        poll_until(lambda: len(leader.partitions) == 4, "a leader", leader)
        leader.consumer.close()

        grow_topic(server, topic, 6)
        again = Watched(server, group, group_instance_id="leads").subscribe(topic)
        with watching(again):
            poll_until(lambda: len(again.partitions) == 6, "all six partitions", again)


def test_of_two_consumers_with_one_instance_id_one_survives_and_the_other_says_why(
    server: Server, topic: str, group: str
) -> None:
    make_topic(server, topic)
    produce(server, topic, 10)
    first = Watched(server, group, group_instance_id="instance-1", client_id="first-process").subscribe(topic)
    second = Watched(server, group, group_instance_id="instance-1", client_id="second-process")
    with watching(first, second):
        poll_until(lambda: len(first.partitions) == 4, "the partitions", first)
        own_id = first.consumer.memberid()
        second.subscribe(topic)
        poll_until(lambda: len(second.partitions) == 4, "the same partitions", second)

        def poll_first() -> FencedInstanceId | None:
            try:
                first.poll()
            except FencedInstanceId as fenced:
                return fenced
            return None

        fenced = eventually(poll_first, "the first is fenced")
        assert fenced is not None
        said = str(fenced)
        assert fenced.fatal
        # Kafka goes on showing the client id of the first process.
        shown = "'first-process'" if isinstance(server, ApacheKafka) else "'second-process'"
        holder = repr(second.consumer.memberid())
        for part in ("'instance-1'", repr(own_id), holder, shown, "127.0.0.1", "stop one of them"):
            assert part in said
        assert first.callbacks[-1] == ("on_lost", [0, 1, 2, 3])
        assert first.partitions == []

        # It is over for good: nothing it does changes the group's offsets or takes the instance id back.
        with pytest.raises(FencedInstanceId):
            first.consumer.commit(asynchronous=False)
        with pytest.raises(FencedInstanceId):
            first.consumer.poll(0)
        with pytest.raises(FencedInstanceId):
            first.consumer.subscribe([topic])
        poll_until(lambda: len(second.records) >= 40, "the second reads on", second)


def test_unsubscribe_with_leave_removes_the_static_member(server: Server, topic: str, group: str) -> None:
    make_topic(server, topic)
    one = Watched(server, group, group_instance_id="instance-1", session_timeout_ms=60_000).subscribe(topic)
    with watching(one), Admin({"bootstrap.servers": server.bootstrap}) as admin:
        poll_until(lambda: len(one.partitions) == 4, "the partitions", one)

        one.consumer.unsubscribe()
        assert [member.group_instance_id for member in admin.describe_group(group).members] == ["instance-1"]

        one.subscribe(topic)
        poll_until(lambda: len(one.partitions) == 4, "the partitions again", one)
        one.consumer.unsubscribe(leave=True)
        eventually(lambda: admin.describe_group(group).members == (), "an empty group")


def test_a_static_consumer_that_hangs_keeps_its_assignment_until_the_session_ends(
    server: Server, topic: str, group: str
) -> None:
    make_topic(server, topic)
    one = Watched(server, group, group_instance_id="instance-1", max_poll_interval_ms=1_000, session_timeout_ms=30_000)
    with watching(one), Admin({"bootstrap.servers": server.bootstrap}) as admin:
        one.subscribe(topic)
        poll_until(lambda: len(one.partitions) == 4, "the partitions", one)
        held = one.consumer.memberid()

        eventually(lambda: one.consumer._group.membership_thread._poll_expired, "its poll interval is over")
        assert [member.member_id for member in admin.describe_group(group).members] == [held]
        with pytest.raises(CommitFailed):
            one.consumer.commit(offsets=one.consumer.position(one.consumer.assignment()), asynchronous=False)

        poll_until(lambda: one.callbacks[-2:] == [("on_lost", [0, 1, 2, 3]), ("on_assign", [0, 1, 2, 3])], "back", one)


def test_a_dynamic_one_leaves(server: Server, topic: str, group: str) -> None:
    make_topic(server, topic)
    one = Watched(server, group, max_poll_interval_ms=1_000, session_timeout_ms=30_000).subscribe(topic)
    with watching(one), Admin({"bootstrap.servers": server.bootstrap}) as admin:
        poll_until(lambda: len(one.partitions) == 4, "the partitions", one)

        eventually(lambda: admin.describe_group(group).members == (), "it left")
        poll_until(lambda: one.callbacks[-2:] == [("on_lost", [0, 1, 2, 3]), ("on_assign", [0, 1, 2, 3])], "back", one)


def test_a_pool_numbers_its_instance_ids_and_an_operator_can_remove_them(
    server: Server, topic: str, group: str
) -> None:
    make_topic(server, topic)
    produce(server, topic, 25)
    handled = []
    config = {
        "bootstrap.servers": server.bootstrap,
        "group.id": group,
        "group.instance.id": "app",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 60_000,
    }
    with Pool(config, 3) as pool, Admin({"bootstrap.servers": server.bootstrap}) as admin:
        assert pool.instance_ids == ["app-thread-1", "app-thread-2", "app-thread-3"]
        pool.start([topic], lambda _consumer, message: handled.append((message.partition(), message.offset())))
        eventually(lambda: len(set(handled)) == 100, "every record handled")
        eventually(
            lambda: (
                sorted(str(one.group_instance_id) for one in admin.describe_group(group).members) == pool.instance_ids
            ),
            "three members",
        )
        pool.check()
        pool.close()

        assert committed(server, group, topic) == dict.fromkeys(range(4), 25)
        removed = admin.remove_members(group, instance_ids=pool.instance_ids, reason="the application is gone")
        assert [(one.group_instance_id, one.error) for one in removed] == [(one, None) for one in pool.instance_ids]
        assert admin.describe_group(group).members == ()


def test_a_pool_whose_handler_fails_stops_and_commits_only_handled_records(
    server: Server, topic: str, group: str
) -> None:
    make_topic(server, topic, 1)
    produce(server, topic, 20, partitions=1)
    handled: list[object] = []

    def handle(_consumer: Consumer, message: object) -> None:
        if len(handled) == 7:
            raise ZeroDivisionError("the eighth")
        handled.append(message)

    config = {"bootstrap.servers": server.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    with pytest.raises(ZeroDivisionError, match="the eighth"):
        Pool(config, 2).run([topic], handle)

    assert committed(server, group, topic).get(0, 0) <= 7


@pytest.mark.parametrize("bad", [".", "..", "white space", "ümlaut", "x" * 250])
def test_an_instance_id_that_no_client_of_kafka_takes_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match=r"group\.instance\.id"):
        Consumer({"bootstrap.servers": "localhost:1", "group.id": "g", "group.instance.id": bad})
