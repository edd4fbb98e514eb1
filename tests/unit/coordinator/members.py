"""Consumers as the tests see them: they join, sync and remember who they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.coordinator.classic.member import Client
from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import (
    DELAY_MS,
    GROUP,
    JAVA,
    RANGE_AND_ROUNDROBIN,
    REBALANCE_MS,
    SESSION_MS,
    CoordinatorHarness,
    Handle,
)


@dataclass(eq=False)
class Consumer:
    harness: CoordinatorHarness
    instance: str | None = None
    version: int = 9
    protocols: Sequence[str] = RANGE_AND_ROUNDROBIN
    metadata: bytes = b"metadata"
    session_ms: int = SESSION_MS
    rebalance_ms: int = REBALANCE_MS
    assignment: bytes = b"\x07"
    group: str = GROUP
    client: Client = field(default_factory=lambda: Client("cid", "/127.0.0.1", software=JAVA))
    id: str = ""
    generation: int = -1
    leads: bool = False
    joining: Handle | None = None
    members: list[Any] = field(default_factory=list)
    protocol_name: str | None = None

    def join(self) -> Handle:
        """JoinGroup; a dynamic one that is sent back with an id comes again with it (KIP-394)."""
        handle = self._join_once()
        if not handle.is_pending and handle.code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = handle.member_id
            handle = self._join_once()
        self.joining = handle
        self.take()
        return handle

    def _join_once(self) -> Handle:
        return self.harness.join(
            self.id,
            instance=self.instance,
            version=self.version,
            protocols=self.protocols,
            metadata=self.metadata,
            session_ms=self.session_ms,
            rebalance_ms=self.rebalance_ms,
            group=self.group,
            client=self.client,
        )

    def take(self) -> None:
        """Learns from the answer to the last join, if it is there and good."""
        handle = self.joining
        if handle is None or handle.is_pending or handle.code != ErrorCode.NONE:
            return
        self.id, self.generation = handle.member_id, handle.generation
        self.leads = handle.reply.leader == self.id
        self.members = handle.reply.members
        self.protocol_name = handle.reply.protocol_name
        self.joining = None

    def restarted(self, **changes: Any) -> Consumer:
        """The same instance in a new process, which remembers nothing."""
        same = {
            name: getattr(self, name)
            for name in (
                "instance",
                "version",
                "protocols",
                "metadata",
                "session_ms",
                "rebalance_ms",
                "group",
                "client",
            )
        }
        return Consumer(self.harness, **{**same, **changes})

    def sync(self, *others: Consumer) -> Handle:
        """SyncGroup; a leader brings its own assignment and those of the others."""
        given = {consumer.id: consumer.assignment for consumer in (self, *others)} if self.leads else None
        return self.sync_with(given)

    def sync_with(self, given: Mapping[str, bytes] | None = None, **tags: Any) -> Handle:
        return self.harness.sync(
            self.id,
            self.generation,
            given,
            instance=self.instance,
            protocol_name=self.protocol_name,
            group=self.group,
            client=self.client,
            **tags,
        )

    def heartbeat(self) -> ErrorCode:
        return self.harness.heartbeat(
            self.id, self.generation, instance=self.instance, group=self.group, client=self.client
        )

    def leave(self) -> ErrorCode:
        return self.harness.leave((self.id, self.instance), group=self.group).codes[0]

    def commit(self, offset: int, topic: str = "t") -> Handle:
        return self.harness.commit(
            {(topic, 0): offset},
            member_id=self.id,
            generation=self.generation,
            instance=self.instance,
            group=self.group,
        )


def joined(*consumers: Consumer, wait_ms: int = 2 * DELAY_MS) -> None:
    """Given: all of them in one new generation, nobody synced. (Who comes second prolongs the initial delay once.)"""
    for consumer in consumers:
        consumer.join()
    consumers[0].harness.advance(wait_ms)
    for consumer in consumers:
        consumer.take()
        assert consumer.joining is None, consumer.joining


def synced(*consumers: Consumer) -> None:
    """Given: the generation that they joined, assigned."""
    followers = [consumer for consumer in consumers if not consumer.leads]
    (leader,) = [consumer for consumer in consumers if consumer.leads]
    waiting = [follower.sync() for follower in followers]
    waiting.append(leader.sync(*followers))
    assert [handle.code for handle in waiting] == [ErrorCode.NONE] * len(consumers)


def stable(*consumers: Consumer) -> None:
    """Given: a stable group of exactly these."""
    joined(*consumers)
    synced(*consumers)


def dynamic(harness: CoordinatorHarness, **about: Any) -> Consumer:
    return Consumer(harness, **about)


def lone_member(harness: CoordinatorHarness, **about: Any) -> Consumer:
    consumer = Consumer(harness, **about)
    stable(consumer)
    return consumer


def pair(harness: CoordinatorHarness, **about: Any) -> tuple[Consumer, Consumer]:
    """Given: the document's pair of static members, L leading with assignment 01, F following with 02, stable."""
    leader = Consumer(harness, instance="L", assignment=b"\x01", **about)
    follower = Consumer(harness, instance="F", assignment=b"\x02", **about)
    stable(leader, follower)
    assert leader.leads
    assert not follower.leads
    assert harness.generation() == 1
    return leader, follower


def subscription(*topics: str) -> bytes:
    return encode_subscription(Subscription(topics=list(topics)))


def keep_alive(ms: int, *consumers: Consumer, step_ms: int = 50) -> None:
    """Time passes while these send heartbeats, whatever they are answered."""
    harness = consumers[0].harness
    for _ in range(ms // step_ms):
        harness.advance(step_ms)
        for consumer in consumers:
            consumer.heartbeat()
