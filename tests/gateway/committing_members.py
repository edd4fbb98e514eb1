"""Members of a group that commit rising offsets while something happens to the gateway or to Kafka.

Each one knows which of its commits were acknowledged. Any offset that is read back must be at least as high.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast import Admin
from holdfast.coordinator.events.group_event import EventKind
from tests.support.eventually import eventually
from tests.support.gateway_process import GatewayProcess

PARTITIONS = 4
LONG_SESSION_MS = 60_000
"""Longer than any restart on a busy machine."""
RECOVERED_WITHIN_S = 120.0

_JOIN_TIMEOUT_S = 60
_REQUEST_TIMEOUT_S = 5.0


class CommittingMember:
    """A static member of confluent-kafka. It commits the next offset of its partitions as soon as the last commit is
    answered, in a thread of its own."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, instance_id: str, session_ms: int, attempted: dict[int, int]
    ) -> None:
        """`attempted` has the last offset of each partition that any member of the group has tried to commit."""
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": instance_id,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 500,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self.instance_id = instance_id
        self.assignments = 0
        self.revocations = 0
        self.attempted = attempted
        self.acknowledged: dict[int, int] = {}
        self.failures: list[str] = []
        self._topic = topic
        self._stopping = threading.Event()
        self._may_commit = threading.Event()
        self._may_commit.set()
        self._is_quiet = threading.Event()
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        # A commit waits for as long as no gateway answers. A test that fails need not wait with it.
        self._thread = threading.Thread(target=self._run, name=instance_id, daemon=True)
        self._thread.start()

    @property
    def commits(self) -> int:
        """The sum of the acknowledged offsets, which rises with each commit."""
        return sum(dict(self.acknowledged).values())

    def stop(self) -> None:
        """A static member does not leave the group. It is missed when its session ends."""
        self.stop_soon()
        self._thread.join(_JOIN_TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self.instance_id} still waits for the answer to a commit"

    def stop_soon(self) -> None:
        self._stopping.set()

    def quiesce(self) -> None:
        """It commits nothing any more, and sends only heartbeats. Its last commit is answered."""
        self._may_commit.clear()
        self._is_quiet.clear()
        assert self._is_quiet.wait(_JOIN_TIMEOUT_S), f"{self.instance_id} still waits for the answer to a commit"

    def resume(self) -> None:
        self._may_commit.set()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._consumer.poll(0.01)
                if self._may_commit.is_set():
                    self._commit([one.partition for one in self._consumer.assignment()])
                else:
                    self._is_quiet.set()
        finally:
            self._consumer.close()

    def _commit(self, partitions: Sequence[int]) -> None:
        if not partitions:
            return
        for partition in partitions:
            self.attempted[partition] = self.attempted.get(partition, 0) + 1
        offsets = [TopicPartition(self._topic, partition, self.attempted[partition]) for partition in partitions]
        try:
            answered = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self.failures.append(str(error))
            return
        for one in answered or ():
            if one.error is None:
                self.acknowledged[one.partition] = one.offset
            else:
                self.failures.append(str(one.error))

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += bool(partitions)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.revocations += bool(partitions)


@dataclass
class CommittingGroup:
    gateway: GatewayProcess
    group: str
    topic: str
    members: list[CommittingMember] = field(default_factory=list)
    attempted: dict[int, int] = field(default_factory=dict)

    def start_member(self, session_ms: int = LONG_SESSION_MS) -> CommittingMember:
        instance_id = f"{self.group}-{len(self.members)}"
        bootstrap = self.gateway.bootstrap
        member = CommittingMember(bootstrap, self.group, self.topic, instance_id, session_ms, self.attempted)
        self.members.append(member)
        return member

    def await_commits(self, count: int = 1) -> None:
        """Until each member has so many more commits acknowledged."""
        wanted = [member.commits + count for member in self.members]

        def look() -> bool:
            self.check_offsets()
            return all(member.commits >= least for member, least in zip(self.members, wanted, strict=True))

        eventually(look, "the members commit", RECOVERED_WITHIN_S, of=[one.failures[-3:] for one in self.members])

    def await_assigned(self) -> None:
        eventually(
            lambda: sum(len(member.acknowledged) for member in self.members) == PARTITIONS,
            "the members have committed each partition",
            RECOVERED_WITHIN_S,
            of=[one.failures[-3:] for one in self.members],
        )

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check_offsets(self, bootstrap: str | None = None) -> bool:
        """What is read back is not below what was acknowledged before the question. False if nothing can be read."""
        acknowledged = self._acknowledged()
        try:
            read = committed(bootstrap or self.gateway.bootstrap, self.group, self.topic)
        except KafkaException:
            return False
        attempted = dict(self.attempted)
        for partition, offset in acknowledged.items():
            assert offset <= read[partition] <= attempted[partition], (partition, acknowledged, read, attempted)
        return True

    def await_offsets_checked(self, bootstrap: str | None = None) -> None:
        eventually(lambda: self.check_offsets(bootstrap), "the offsets are readable", RECOVERED_WITHIN_S)

    def generation(self) -> int:
        with Admin({"bootstrap.servers": self.gateway.bootstrap}) as admin:
            extensions = admin.describe_group(self.group).extensions
        assert extensions is not None
        return extensions.generation

    def rebalances(self) -> int:
        """By the ledger."""
        with Admin({"bootstrap.servers": self.gateway.bootstrap}) as admin:
            events = admin.history([self.group])
        return sum(event.kind == EventKind.GENERATION_FORMED for event in events)

    def undisturbed(self) -> tuple[int, int, list[int], list[int]]:
        """Equal before and after an incident that nobody had to notice."""
        return (
            self.generation(),
            self.rebalances(),
            [member.assignments for member in self.members],
            [member.revocations for member in self.members],
        )

    def _acknowledged(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for member in self.members:
            for partition, offset in dict(member.acknowledged).items():
                found[partition] = max(offset, found.get(partition, 0))
        return found


@contextmanager
def committing_group(
    gateway: GatewayProcess, members: int = 2, session_ms: int = LONG_SESSION_MS
) -> Iterator[CommittingGroup]:
    """Members that share the partitions of a topic and have committed each of them."""
    found = CommittingGroup(gateway, unique("g"), created_topic(gateway.bootstrap, unique("t"), PARTITIONS))
    try:
        for _ in range(members):
            found.start_member(session_ms)
        found.await_assigned()
        found.await_commits()
        yield found
        for member in found.members:
            member.stop_soon()
        for member in found.members:
            member.stop()
    finally:
        for member in found.members:
            member.stop_soon()


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def created_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # named: it must outlive its question
    new = NewTopic(name, partitions, config={key.replace("_", "."): value for key, value in configs.items()})
    admin.create_topics([new])[name].result(60)
    return name


def committed(bootstrap: str, group: str, topic: str, partitions: int = PARTITIONS) -> dict[int, int]:
    """Raises KafkaException if there is no answer soon."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    with contextlib.closing(Consumer(settings)) as consumer:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        answered = consumer.committed(asked, timeout=_REQUEST_TIMEOUT_S)
    for one in answered:
        if one.error is not None:
            raise KafkaException(one.error)
    return {one.partition: one.offset for one in answered}
