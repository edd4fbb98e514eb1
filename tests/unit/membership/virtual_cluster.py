"""Both halves of the protocol under one clock: our members, our assignors, our coordinator, and no network in between.

A member here is the whole client half: the membership and the consumer coordinator that `client/` drives, and an
application that polls whenever it is awake, processes one record of each of its partitions per poll, and commits. It
can be paused, killed and started again; the broker can be restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.assignors import Assignor, Cluster
from holdfast.membership import Membership, MembershipSettings
from holdfast.membership.consumer_coordinator import ConsumerCoordinator, MetadataView, Steps
from holdfast.membership.consumer_effects import (
    BeforeRejoin,
    BeforeRevoke,
    ConsumerEffect,
    DescribeGroup,
    FetchCluster,
    FetchStartOffsets,
    GroupView,
    LogWarning,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RaiseFailure,
    RecordFailure,
    RequestMetadata,
    ResolveTopics,
)
from holdfast.membership.effects import (
    AssignmentFailed,
    Channel,
    CloseChannels,
    CommitCompleted,
    ConnectCoordinator,
    JoinComplete,
    JoinPrepare,
    MembershipEvent,
    SendRequest,
)
from holdfast.membership.owned_partitions import OwnedPartitions
from holdfast.membership.phases import Phase
from holdfast.types import TopicPartition
from holdfast.wire.apis.describe_groups import DescribedGroup
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR
from holdfast.wire.apis.heartbeat import HEARTBEAT
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.apis.sync_group import SYNC_GROUP
from tests.unit.coordinator.harness import GROUP, CoordinatorHarness, Handle
from tests.unit.membership.member_harness import coordinator_at

SESSION_MS = 6_000
POLL_MS = 20_000
STEP_MS = 100


@dataclass(eq=False)
class _Pending:
    send: SendRequest
    handle: Handle
    reply_at: int | None = None
    """When its answer, once given, has come over the wire."""


@dataclass(eq=False)
class Actor:
    """One process of the application."""

    cluster: VirtualCluster
    name: str
    assignors: Sequence[Assignor]
    instance_id: str | None
    member: Membership = field(init=False)
    consumer: ConsumerCoordinator = field(init=False)
    paused_until: int = 0
    is_closed: bool = False
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    epoch: int = -1
    last_member_id: str = ""
    """By which it last spoke to the coordinator."""
    revocations: int = 0
    """How often it had to give something up."""
    _metadata_requested: bool = False
    _pending: list[_Pending] = field(default_factory=list)
    _commits: dict[int, dict[TopicPartition, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = MembershipSettings(
            GROUP,
            "consumer",
            group_instance_id=self.instance_id,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=POLL_MS,
        )
        self.member = Membership(settings)
        self.consumer = ConsumerCoordinator(
            settings,
            OwnedPartitions(self.assignors),
            metadata_max_age_ms=STEP_MS,
            metadata_rebalance_min_interval_ms=0,
        )
        self.consumer.subscribe(frozenset(self.cluster.cluster.partitions))
        self.member.join(self.cluster.harness.now)

    @property
    def owned(self) -> OwnedPartitions:
        return self.consumer.owned_partitions

    def turn(self) -> None:
        """What a process does when it gets the processor."""
        now = self.cluster.harness.now
        if self.is_closed or now < self.paused_until:
            return
        self._take_reply()
        self.member.polled(now)
        self.member.tick(now)
        self._perform()
        self._check_metadata()
        self._work(now)
        self._perform()

    def connection_lost(self) -> None:
        """The broker went away."""
        lost, self._pending = self._pending, []
        for asked in lost:
            self.member.request_failed(asked.send.request_id, self.cluster.harness.now)

    def _take_reply(self) -> None:
        now, held_up = self.cluster.harness.now, set()
        for asked in list(self._pending):
            if asked not in self._pending:
                continue
            if not asked.handle.is_pending and asked.reply_at is None:
                asked.reply_at = now + self.cluster.lag_ms()
            if asked.reply_at is None or asked.reply_at > now or asked.send.channel in held_up:
                held_up.add(asked.send.channel)  # one connection answers in order
                continue
            self._pending.remove(asked)
            self.member.response_received(asked.send.request_id, self._response(asked.send, asked.handle), now)

    def _response(self, send: SendRequest, handle: Handle) -> Any:
        if send.api is not OFFSET_COMMIT:
            return handle.reply
        entries = [
            OffsetCommitResponseTopic(name=topic, partitions=[OffsetCommitResponsePartition(number, int(code))])
            for (topic, number), code in handle.reply.items()
        ]
        return OffsetCommitResponse(topics=entries)

    def _perform(self) -> None:
        now = self.cluster.harness.now
        while effects := self.member.take_effects():
            for effect in effects:
                match effect:
                    case SendRequest():
                        self._send(effect)
                    case ConnectCoordinator():
                        self.member.coordinator_connected((0, 9), now, has_extensions=self.cluster.extensions)
                    case CloseChannels(channels):
                        self._disconnect(channels)
                    case AssignmentFailed():
                        self.cluster.reported_failures += 1
                    case CommitCompleted():
                        self._commits.pop(effect.commit_id, None)
                    case _:
                        self._handle(effect)

    def _handle(self, event: MembershipEvent) -> None:
        match event:
            case JoinPrepare():
                self.cluster.check_loss(self, lost=event.lost)
            case JoinComplete(epoch=int(epoch)):
                assert epoch >= self.epoch, f"{self.name}: {epoch} after {self.epoch}"
                self.epoch = epoch
        self._run(self.consumer.handle(event))
        if self.consumer.awaits_offsets:
            self._run(self.consumer.start_partitions())

    def _disconnect(self, channels: tuple[Channel, ...]) -> None:
        broken = [asked for asked in self._pending if asked.send.channel in channels]
        self._pending = [asked for asked in self._pending if asked.send.channel not in channels]
        for asked in broken:
            self.member.request_failed(asked.send.request_id, self.cluster.harness.now)

    def _send(self, send: SendRequest) -> None:
        request = send.build(send.max_version)
        self.last_member_id = getattr(request, "member_id", "") or self.last_member_id
        self._pending.append(_Pending(send, self.cluster.request(send, request)))

    # -- the consumer coordinator --------------------------------------------------------------------------------------

    def _run(self, steps: Steps[Any]) -> None:
        result = None
        while not self.is_closed:
            self.consumer.advance(self.cluster.harness.now, has_extensions=self.cluster.extensions)
            try:
                effect = steps.send(result)
            except StopIteration:
                return
            result = self._perform_for_consumer(effect)

    def _perform_for_consumer(self, effect: ConsumerEffect) -> Any:
        match effect:
            case FetchCluster(topics):
                return self._topics(topics)
            case FetchStartOffsets(partitions):
                committed = self.cluster.harness.fetch()
                return {where: max(0, committed.get(where, 0)) for where in partitions}
            case DescribeGroup(topics):
                return GroupView(self.cluster.described(), self._topics(topics))
            case RequestMetadata():
                self._metadata_requested = True
            case PartitionsAssigned(offsets):
                self.positions.update(offsets)
            case PartitionsRevoked(partitions) | PartitionsLost(partitions):
                self._revoke(list(partitions))
            case RaiseFailure():
                self.is_closed = True
                self._revoke(list(self.positions))
            case BeforeRejoin() | BeforeRevoke() | LogWarning() | RecordFailure():
                pass
            case ResolveTopics():
                raise AssertionError("it subscribes to no pattern")
            case command:
                command(self.member, self.cluster.harness.now)
        return None

    def _topics(self, names: Collection[str]) -> Cluster:
        return Cluster({name: count for name, count in self.cluster.cluster.partitions.items() if name in names})

    def _check_metadata(self) -> None:
        view = None
        if self._metadata_requested:
            self._metadata_requested = False
            view = MetadataView(self.owned.topics, self._topics(self.consumer.monitored_topics))
        self._run(self.consumer.check_metadata(view))

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        self.revocations += bool(partitions)
        for where in partitions:
            self.positions.pop(where, None)

    def _work(self, now: int) -> None:
        """One record of each partition, then a commit of all of them, one at a time."""
        if self._commits or not self.positions:
            return  # nothing given, or all of it given up
        for where, offset in self.positions.items():
            self.cluster.processed.setdefault(where, set()).add(offset)
            self.positions[where] = offset + 1
        offsets = {where: (offset, None, -1) for where, offset in self.positions.items()}
        number = self.member.commit(offsets, now, 5_000)
        self._commits[number] = dict(self.positions)


class VirtualCluster:
    def __init__(
        self, partitions: dict[str, int], *, extensions: bool = False, lag_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """`extensions`: the members know that their coordinator is a Holdfast. `lag_ms`: how long the next answer is on
        its way; those of one connection come in order."""
        self.extensions = extensions
        self.lag_ms = lag_ms
        self.reported_failures = 0
        self.harness = CoordinatorHarness(partition_count=1)
        self.harness.topics |= partitions
        self.cluster = Cluster(partitions)
        self.actors: list[Actor] = []
        self.processed: dict[TopicPartition, set[int]] = {}
        self.committers: dict[tuple[int, TopicPartition], str] = {}
        """By generation and partition, who committed it."""

    def start(self, name: str, assignors: Sequence[Assignor], instance_id: str | None = None) -> Actor:
        actor = Actor(self, name, assignors, instance_id)
        self.actors.append(actor)
        return actor

    def kill(self, actor: Actor) -> None:
        """Gone without a word; its requests stay where they are, as they do when a machine dies."""
        self.actors.remove(actor)

    def grow(self, topic: str, more: int) -> None:
        self.cluster = Cluster({**self.cluster.partitions, topic: self.cluster.partitions[topic] + more})
        self.harness.topic_grew(topic, self.cluster.partitions[topic])

    def described(self) -> DescribedGroup:
        return self.harness.coordinator.describe_group(GROUP, 5, with_extensions=True)

    def restart_broker(self, *, only_load: bool = False) -> None:
        self.harness.restart(only_load=only_load)
        for actor in self.actors:
            actor.connection_lost()

    def run(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self.harness.advance(STEP_MS)
            for actor in list(self.actors):
                actor.turn()
            self.check()

    def request(self, send: SendRequest, request: Any) -> Handle:
        harness = self.harness
        if send.api is FIND_COORDINATOR:
            handle = Handle("FindCoordinator")
            handle.answer(coordinator_at())
            return handle
        if send.api is JOIN_GROUP:
            return harness.join(
                request.member_id,
                instance=request.group_instance_id,
                offered=[(one.name, one.metadata) for one in request.protocols],
                session_ms=request.session_timeout_ms,
                rebalance_ms=request.rebalance_timeout_ms,
            )
        if send.api is SYNC_GROUP:
            return harness.sync(
                request.member_id,
                request.generation_id,
                {one.member_id: one.assignment for one in request.assignments},
                instance=request.group_instance_id,
                protocol_name=request.protocol_name,
                wants_epoch=request.wants_epoch,
                resync_from_epoch=request.resync_from_epoch,
                failure=request.failure,
            )
        if send.api is HEARTBEAT:
            return harness.heartbeat_later(request.member_id, request.generation_id, instance=request.group_instance_id)
        if send.api is LEAVE_GROUP:
            return harness.leave(*((one.member_id, one.group_instance_id) for one in request.members))
        assert send.api is OFFSET_COMMIT
        return self._commit(request)

    def _commit(self, request: Any) -> Handle:
        offsets = {
            (topic.name, one.partition_index): one.committed_offset
            for topic in request.topics
            for one in topic.partitions
        }
        handle = self.harness.commit(
            offsets,
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            instance=request.group_instance_id,
        )
        if not handle.is_pending:
            for where, code in handle.reply.items():
                if not code:
                    self._accepted(request.generation_id_or_member_epoch, where, request.member_id, offsets[where])
        return handle

    def _accepted(self, generation: int, where: TopicPartition, member_id: str, offset: int) -> None:
        """In one generation a partition has one committer, and nobody commits what was not processed."""
        key = generation, where
        committer = self.committers.setdefault(key, member_id)
        assert self._same_instance(committer, member_id), (
            f"{where} in generation {generation}: {committer} and {member_id}"
        )
        assert offset - 1 in self.processed[where], f"{where} committed at {offset}, which nobody processed"

    def _same_instance(self, first: str, second: str) -> bool:
        """A static member that came back has another id in the same generation; the ids begin with the instance's."""
        return first == second or first.rsplit("-", 1)[0].split("-")[0] == second.rsplit("-", 1)[0].split("-")[0] != ""

    def check_loss(self, actor: Actor, *, lost: bool) -> None:
        """A dynamic member gives its partitions up for lost only if the coordinator has it no more: a static one may be
        left behind by a generation and stay in the group."""
        if lost and actor.positions and actor.instance_id is None:
            members = [one.member_id for one in self.described().members]
            assert actor.last_member_id not in members, f"{actor.name} gave up {sorted(actor.positions)} for nothing"

    def check(self) -> None:
        stable = [one for one in self.actors if one.member.phase is Phase.STABLE and not one.is_closed]
        newest = max((one.member.generation.generation_id for one in stable), default=-1)
        owners: dict[TopicPartition, str] = {}
        for one in stable:
            if one.member.generation.generation_id != newest:
                continue
            for where in one.owned.partitions:
                # Of two processes with one instance id the older believes in its membership until its next request.
                owner = owners.setdefault(where, one.name)
                assert owner == one.name, f"{where} belongs to {owner} and {one.name} in generation {newest}"

    @property
    def is_settled(self) -> bool:
        """All members are in one generation, and every partition has an owner."""
        alive = [one for one in self.actors if not one.is_closed]
        if any(one.member.phase is not Phase.STABLE for one in alive):
            return False
        owned = sorted(where for one in alive for where in one.owned.partitions)
        everything = sorted(
            (name, number) for name, count in self.cluster.partitions.items() for number in range(count)
        )
        return len({one.member.generation.generation_id for one in alive}) == 1 and owned == everything
