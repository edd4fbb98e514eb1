"""Consumers whose assignments are real ones, for what the coordinator does within a generation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.coordinator.classic.member import Client, MemberConnection
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.apis.join_group import JoinGroupRequestProtocol
from holdfast.wire.apis.join_groups import JoinGroupsMember
from holdfast.wire.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import JAVA, CoordinatorHarness, Handle
from tests.unit.coordinator.members import Consumer

REBALANCE: Final = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID
LONG_MS: Final = 600_000
"""A session that is still running when everything else has happened."""


def assignment(*partitions: int, topic: str = "t") -> bytes:
    entries = [TopicPartitions(topic, list(partitions))] if partitions else []
    return encode_assignment(Assignment(entries), 0)


def reads(*topics: str, owns: Iterable[int] = (), generation: int = -1) -> bytes:
    """A subscription; with what a cooperative client adds to it."""
    owned = [TopicPartitions(topics[0], list(owns))] if owns else []
    return encode_subscription(Subscription(list(topics), owned_partitions=owned, generation_id=generation))


def partitions(handle: Handle) -> set[int]:
    """What a SyncGroup brought."""
    assert handle.code is ErrorCode.NONE
    decoded = decode_assignment(handle.reply.assignment)
    return {number for entry in decoded.assigned_partitions for number in entry.partitions}


def connection(software: str = JAVA) -> Client:
    """A client on a connection of its own."""
    return Client("cid", "/127.0.0.1", MemberConnection(), software)


def worker(harness: CoordinatorHarness, instance: str | None = None, *owns: int, **about: Any) -> Consumer:
    """A member of type consumer that reads topic t, on its own connection; if it is to have an assignment, then this
    one."""
    about.setdefault("metadata", reads("t"))
    return Consumer(harness, instance=instance, assignment=assignment(*owns), client=connection(), **about)


def entry(consumer: Consumer) -> JoinGroupsMember:
    protocols = [JoinGroupRequestProtocol(name, consumer.metadata) for name in consumer.protocols]
    return JoinGroupsMember(consumer.id, consumer.instance, protocols)


def rebalances(harness: CoordinatorHarness) -> int:
    return len(harness.events_of(EventKind.REBALANCE_STARTED))


def is_standby(*consumers: Consumer) -> None:
    """Given: these have joined, were answered at once, and have got nothing."""
    for consumer in consumers:
        assert not consumer.join().is_pending
        assert not consumer.leads
        assert partitions(consumer.sync()) == set()
        assert consumer.heartbeat() is ErrorCode.NONE


def all_rejoin(*members: Consumer, also: Iterable[Consumer] = ()) -> None:
    """When: these hear of the rebalance and join, others have joined already, and the leader assigns."""
    for consumer in members:
        assert consumer.heartbeat() is REBALANCE
        consumer.join()
    consumers = [*members, *also]
    for consumer in consumers:
        consumer.take()
        assert consumer.joining is None, consumer.joining
    followers = [consumer for consumer in consumers if not consumer.leads]
    (leader,) = [consumer for consumer in consumers if consumer.leads]
    waiting = [follower.sync() for follower in followers]
    assert leader.sync(*followers).code is ErrorCode.NONE
    assert all(handle.code is ErrorCode.NONE for handle in waiting)
