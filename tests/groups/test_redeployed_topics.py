"""A static member of librdkafka's is deployed again with another topic, and with the same ones as the control."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer

from holdfast.coordinator.events.causes import CauseCode
from tests.groups.topics import ledger, make_topic, produce
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker


class Deployed:
    """A consumer and the topics of what it has read."""

    def __init__(self, server: HoldfastBroker, group: str, instance_id: str, strategy: str, *topics: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": group,
                "group.instance.id": instance_id,
                "partition.assignment.strategy": strategy,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 200,
            }
        )
        self._consumer.subscribe(list(topics))
        self.read: set[str | None] = set()

    def poll(self) -> None:
        message = self._consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.read.add(message.topic())

    @property
    def topics(self) -> set[str]:
        """Of its assignment."""
        return {one.topic for one in self._consumer.assignment()}

    @contextmanager
    def running(self) -> Iterator[Deployed]:
        try:
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_topic_that_a_redeployed_member_adds_is_read(
    quick_holdfast: HoldfastBroker, group: str, topic_name: str, strategy: str
) -> None:
    server, added = quick_holdfast, f"{topic_name}-added"
    for name in (topic_name, added):
        make_topic(server, name, 2)
        produce(server, name, each=1, partitions=2)
    with ExitStack() as stack:

        def deployed(instance_id: str, *topics: str) -> Deployed:
            return stack.enter_context(Deployed(server, group, instance_id, strategy, *topics).running())

        def polled_until(look: Callable[[], bool], what: str, *members: Deployed) -> None:
            def polled() -> bool:
                for member in members:
                    member.poll()
                return look()

            eventually(polled, what)

        leader = deployed("a", topic_name)
        polled_until(lambda: leader.topics == {topic_name}, "a leader", leader)
        follower = deployed("b", topic_name)
        polled_until(lambda: follower.topics == {topic_name}, "a follower", leader, follower)
        before = ledger(server, group)[-1]["generation"]

        # the control: the same topics
        follower.stop()
        again = deployed("b", topic_name)
        polled_until(lambda: again.topics == {topic_name}, "its assignment again", leader, again)
        assert ledger(server, group)[-1]["generation"] == before

        again.stop()
        last = deployed("b", topic_name, added)
        polled_until(lambda: added in last.read, "a record of the topic that was added", leader, last)

        causes = [event["cause_code"] for event in ledger(server, group) if event["kind"] == "rebalance started"]
        assert CauseCode.STATIC_MEMBER_CHANGED_TOPICS in causes
