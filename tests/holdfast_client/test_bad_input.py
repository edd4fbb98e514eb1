"""What goes wrong is one clear exception that says what to do; no thread is left behind, and nothing hangs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from kafka import KafkaAdminClient

from holdfast import Assignor, Consumer, Member
from holdfast.assignors import Cluster, MemberAssignment, MemberSubscription
from holdfast.client.errors import (
    AssignorError,
    CallbackError,
    ConfigError,
    ConnectionFailed,
    GroupError,
    HoldfastError,
)
from tests.client_compat.servers import Server
from tests.groups.topics import make_topic, produce
from tests.holdfast_client.consumers import QUICK, Watched, poll_until, watching
from tests.support.eventually import eventually

Assignments = Mapping[str, MemberAssignment]


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    eventually(lambda: set(threading.enumerate()) <= before, "the end of every thread that the test started", 20)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"group.idd": "g"}, "did you mean 'group.id'?"),
        ({"sesion.timeout.ms": 1}, "did you mean 'session.timeout.ms'?"),
        ({"fetch.mim.bytes": 1}, "did you mean 'fetch.min.bytes'?"),
        ({"group.id": ""}, "group.id is missing"),
        ({"session.timeout.ms": "soon"}, "session.timeout.ms is 'soon'"),
        ({"session.timeout.ms": 1_000, "heartbeat.interval.ms": 1_000}, "not below session.timeout.ms"),
        ({"partition.assignment.strategy": "rang"}, "range"),
        ({"partition.assignment.strategy": ""}, "partition.assignment.strategy"),
        ({"partition.assignment.strategy": ["range", "range"]}, "'range' twice"),
        ({"partition.assignment.strategy": [7]}, "names and instances"),
        ({"auto.offset.reset": "sometimes"}, "auto.offset.reset is 'sometimes'"),
        ({"enable.auto.commit": "maybe"}, "enable.auto.commit is 'maybe'"),
        ({"group.protocol": "consumer"}, "group.protocol is 'consumer'"),
        ({"static.membership.fallback": "perhaps"}, "refuse, dynamic"),
        ({"bootstrap.servers": "nonsense:port"}, "bootstrap.servers"),
        ({"fetch.min.bytes": "many"}, "fetch.min.bytes"),
        ({"on_commit": 7}, "on_commit is 7"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Consumer({"bootstrap.servers": "localhost:1", "group.id": "g"} | settings)
    assert said in str(raised.value)


def test_settings_may_be_keywords_but_not_both() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        Consumer({"group.id": "g"}, group_id="g", bootstrap_servers="localhost:1")
    Consumer(group_id="g", bootstrap_servers="localhost:1").close()


@pytest.mark.parametrize("topics", ["orders", [], [""], [7], ["^(unclosed"]])
def test_a_subscription_that_cannot_be_is_refused(topics: Any) -> None:
    with Consumer({"bootstrap.servers": "localhost:1", "group.id": "g"}) as consumer, pytest.raises(ConfigError):
        consumer.subscribe(topics)


class Scripted(Assignor):
    name = "scripted"

    def __init__(self, decide: Any) -> None:
        self._decide = decide

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> Assignments:
        assigned: Assignments = self._decide(cluster, subscriptions)
        return assigned


def raises(_cluster: Cluster, _subscriptions: Any) -> Assignments:
    raise ZeroDivisionError("on purpose")


@pytest.mark.parametrize(
    ("decide", "said"),
    [
        (raises, "raised ZeroDivisionError: on purpose"),
        (lambda cluster, members: {one: MemberAssignment({"nowhere": [0]}) for one in members}, "does not exist"),
        (
            lambda cluster, members: {
                one: MemberAssignment({topic: [*range(count + 1)] for topic, count in cluster.partitions.items()})
                for one in members
            },
            "but the topic has 4 partitions",
        ),
        (lambda cluster, members: {one: MemberAssignment({}) for one in members}, "forgot"),
        (lambda cluster, members: None, "raised AttributeError"),
    ],
)
def test_an_assignor_that_errs_is_named(server: Server, topic: str, group: str, decide: Any, said: str) -> None:
    make_topic(server, topic)
    config = {"bootstrap.servers": server.bootstrap, "group.id": group, **QUICK}
    with Consumer(config | {"partition.assignment.strategy": Scripted(decide)}) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(AssignorError) as raised:
            consumer.poll(60)
        assert said in str(raised.value)
        assert "'scripted'" in str(raised.value)
        assert raised.value.fatal
        with pytest.raises(AssignorError):
            consumer.poll(0)

    # It left, so that the next leader need not wait for it.
    good = Watched(server, group).subscribe(topic)
    with watching(good):
        poll_until(lambda: len(good.partitions) == 4, "another leader", good)


def test_a_group_of_another_protocol_type_is_not_joined(server: Server, topic: str, group: str) -> None:
    make_topic(server, topic)
    config = {"bootstrap.servers": server.bootstrap, "group.id": group}
    with Member(config, "shards", {"even": {}}, lambda members: {one.member_id: {} for one in members}) as member:
        member.wait_for_assignment(60)
        with Consumer(config) as consumer:
            consumer.subscribe([topic])
            with pytest.raises(GroupError, match="INCONSISTENT_GROUP_PROTOCOL") as raised:
                consumer.poll(60)
            assert raised.value.fatal
            assert "group.id" in str(raised.value)


def test_an_unreachable_bootstrap_server_is_named_while_polls_go_on() -> None:
    with socket.socket() as unused:  # bound for as long as the test lasts, and so nobody else's; it does not listen
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        # It complains once in this time, so for as long the next poll has nothing to say.
        config = {"bootstrap.servers": address, "group.id": "g", "request.timeout.ms": 6_000, "log_level": 0}
        with Consumer(config) as consumer:
            consumer.subscribe(["t"])
            began = time.monotonic()
            with pytest.raises(ConnectionFailed) as raised:
                consumer.poll(60)
            assert time.monotonic() - began < 30
            assert address in str(raised.value)
            assert raised.value.retriable
            assert consumer.poll(0.05) is None, "it goes on looking"


def test_a_half_open_bootstrap_server_is_named_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        config = {"bootstrap.servers": address, "group.id": "g", "request.timeout.ms": 500, "log_level": 0}
        with Consumer(config) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(ConnectionFailed) as raised:
                consumer.poll(60)
            assert address in str(raised.value)


def test_closing_while_no_broker_answers_does_not_hang() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "log_level": 0})
        consumer.subscribe(["t"])
        consumer.poll(0.2)
        began = time.monotonic()
        consumer.close(timeout=1)
        assert time.monotonic() - began < 10


def test_a_topic_that_does_not_exist_is_reported_once_and_awaited(server: Server, topic: str, group: str) -> None:
    one = Watched(server, group, metadata_max_age_ms=200, metadata_rebalance_min_interval_ms=100).subscribe(topic)
    with watching(one):
        poll_until(lambda: one.errors, "a word about it", one)
        assert [error.code() for error in one.errors] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
        assert topic in one.errors[0].str()
        make_topic(server, topic)
        poll_until(lambda: len(one.partitions) == 4, "the topic, once it is there", one)
        assert len(one.errors) == 1


def test_a_topic_that_is_deleted_meanwhile_leaves_the_others_alone(server: Server, topic: str, group: str) -> None:
    kept, gone = make_topic(server, f"{topic}-kept", 1), make_topic(server, f"{topic}-gone", 1)
    settings = {"metadata_max_age_ms": 200, "metadata_rebalance_min_interval_ms": 100}
    one = Watched(server, group, **settings)
    with watching(one):
        one.subscribe(kept, gone)
        poll_until(lambda: len(one.consumer.assignment()) == 2, "both topics", one)
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
        admin.delete_topics([gone])
        admin.close()
        poll_until(lambda: [at.topic for at in one.consumer.assignment()] == [kept], "the one that is left", one)
        produce(server, kept, 3, partitions=1)
        poll_until(lambda: len(one.records) == 3, "its records", one)
        assert gone in " ".join(error.str() for error in one.errors), "and the loss was reported"


@pytest.mark.parametrize("which", ["on_assign", "on_revoke"])
def test_a_callback_that_raises_is_reported_by_poll_and_the_group_continues(
    server: Server, topic: str, group: str, which: str
) -> None:
    make_topic(server, topic)
    produce(server, topic, 5)
    raised: list[str] = []

    def callback(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        if not raised:
            raised.append(which)
            raise ZeroDivisionError("on purpose")

    one = Watched(server, group)
    with watching(one):
        one.consumer.subscribe([topic], **{which: callback})
        if which == "on_revoke":
            poll_until(lambda: len(one.partitions) == 4, "partitions", one)
            other = Watched(server, group).subscribe(topic)
            other.poll()
            with pytest.raises(CallbackError, match="on_revoke raised ZeroDivisionError") as caught:
                poll_until(lambda: False, "never", one, other)
            other.consumer.close()
        else:
            with pytest.raises(CallbackError, match="on_assign raised ZeroDivisionError") as caught:
                poll_until(lambda: False, "never", one)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        poll_until(lambda: len(one.partitions) == 4 and len(set(one.records)) == 20, "it reads on", one)


def test_a_closed_consumer_says_so() -> None:
    consumer = Consumer({"bootstrap.servers": "localhost:1", "group.id": "g"})
    consumer.close()
    for call in (
        lambda: consumer.poll(0),
        lambda: consumer.subscribe(["t"]),
        lambda: consumer.commit(),
        lambda: consumer.unsubscribe(),
    ):
        with pytest.raises(HoldfastError, match="closed"):
            call()
