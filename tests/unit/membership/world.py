"""Both halves of the protocol under one clock: our members, our assignors, our coordinator, and no network in between.

A member here is the whole client half as `client/` drives it (membership, share, leading), with an application that
polls whenever it is awake, processes one record of each of its partitions per poll, and commits. It can be paused,
killed and started again; the broker can be restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.assignors import Assignor, Cluster
from holdfast.membership import Membership, MembershipSettings
from holdfast.membership.coverage import uncovered
from holdfast.membership.effects import (
    Adopt,
    CommitEnded,
    Failed,
    HangUp,
    Lane,
    Lead,
    LeaderFailed,
    Left,
    Prepare,
    Reach,
    Send,
)
from holdfast.membership.leading import BadAssignment, decide, read_subscriptions, subscribed_topics
from holdfast.membership.phases import Phase
from holdfast.membership.resync import Leader, growth
from holdfast.membership.share import Share
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
from tests.unit.coordinator.bench import GROUP, Bench, Handle
from tests.unit.membership.scene import coordinator_at

Where = tuple[str, int]
SESSION_MS = 6_000
POLL_MS = 20_000
STEP_MS = 100


@dataclass(eq=False)
class _Asked:
    send: Send
    handle: Handle
    heard_at: int | None = None
    """When its answer, once given, has come over the wire."""


@dataclass(eq=False)
class Actor:
    """One process of the application."""

    world: World
    name: str
    assignors: Sequence[Assignor]
    instance_id: str | None
    member: Membership = field(init=False)
    share: Share = field(init=False)
    paused_until: int = 0
    over: bool = False
    positions: dict[Where, int] = field(default_factory=dict)
    epoch: int = -1
    last_member_id: str = ""
    """By which it last spoke to the coordinator."""
    revocations: int = 0
    """How often it had to give something up."""
    _led_for: Cluster | None = None
    """The topics as they were when it last assigned."""
    _skipped: bool = False
    _waiting: list[_Asked] = field(default_factory=list)
    _commits: dict[int, dict[Where, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.member = Membership(
            MembershipSettings(
                GROUP,
                "consumer",
                group_instance_id=self.instance_id,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=1_000,
                max_poll_interval_ms=POLL_MS,
            )
        )
        self.share = Share(self.assignors)
        self.share.topics = frozenset(self.world.cluster.partitions)
        self.member.join(self.world.bench.now)

    def turn(self) -> None:
        """What a process does when it gets the processor."""
        now = self.world.bench.now
        if self.over or now < self.paused_until:
            return
        self._hear()
        self.member.polled(now)
        self.member.tick(now)
        self._perform()
        self._look_at_topics(now)
        self._work(now)
        self._perform()

    def connection_lost(self) -> None:
        """The broker went away."""
        lost, self._waiting = self._waiting, []
        for asked in lost:
            self.member.unanswered(asked.send.ticket, self.world.bench.now)

    def _hear(self) -> None:
        now, held_up = self.world.bench.now, set()
        for asked in list(self._waiting):
            if asked not in self._waiting:
                continue
            if not asked.handle.parked and asked.heard_at is None:
                asked.heard_at = now + self.world.lag_ms()
            if asked.heard_at is None or asked.heard_at > now or asked.send.lane in held_up:
                held_up.add(asked.send.lane)  # one connection answers in order
                continue
            self._waiting.remove(asked)
            self.member.answered(asked.send.ticket, self._response(asked.send, asked.handle), now)

    def _response(self, send: Send, handle: Handle) -> Any:
        if send.api is not OFFSET_COMMIT:
            return handle.reply
        entries = [
            OffsetCommitResponseTopic(name=topic, partitions=[OffsetCommitResponsePartition(number, int(code))])
            for (topic, number), code in handle.reply.items()
        ]
        return OffsetCommitResponse(topics=entries)

    def _perform(self) -> None:
        now = self.world.bench.now
        while effects := self.member.take_effects():
            for effect in effects:
                match effect:
                    case Send():
                        self._send(effect)
                    case Reach():
                        self.member.reached((0, 9), now, has_extensions=self.world.extensions)
                    case HangUp(lanes):
                        self._hang_up(lanes)
                    case Prepare(number, lost):
                        self.world.check_loss(self, lost=lost)
                        gone = self.share.give_up(lost=lost)
                        self._led_for = None
                        self._let_go([*gone.revoked, *gone.lost])
                        self.member.prepared(number, self.share.protocols(), now)
                    case Lead():
                        self._lead(effect)
                    case Adopt():
                        self._adopt(effect)
                    case LeaderFailed():
                        self.world.told_of_failures += 1
                    case CommitEnded():
                        self._commits.pop(effect.commit, None)
                    case Failed():
                        self.over = True
                        self._let_go(list(self.positions))
                    case Left():
                        pass

    def _hang_up(self, lanes: tuple[Lane, ...]) -> None:
        broken = [asked for asked in self._waiting if asked.send.lane in lanes]
        self._waiting = [asked for asked in self._waiting if asked.send.lane not in lanes]
        for asked in broken:
            self.member.unanswered(asked.send.ticket, self.world.bench.now)

    def _send(self, send: Send) -> None:
        request = send.build(send.highest)
        self.last_member_id = getattr(request, "member_id", "") or self.last_member_id
        self._waiting.append(_Asked(send, self.world.ask(send, request)))

    def _lead(self, event: Lead) -> None:
        now = self.world.bench.now
        subscriptions = read_subscriptions(event.members)
        known = subscribed_topics(subscriptions)
        cluster = Cluster({name: count for name, count in self.world.cluster.partitions.items() if name in known})
        self._led_for, self._skipped = cluster, event.skip
        if event.skip:
            self.member.decided(event.generation, {}, now)
            return
        try:
            decision = decide(self.share.assignors[event.protocol], cluster, subscriptions)
        except BadAssignment as error:
            self.member.report_failure(event.generation, error.fault, str(error), now)
        else:
            self.member.decided(event.generation, decision, now)

    def _look_at_topics(self, now: int) -> None:
        """The leader's eye: what has come is handed out, by a resync where the shares only grow."""
        led_for, topics = self._led_for, self.world.cluster
        if led_for is None or not self.member.is_leader or self.member.phase is not Phase.STABLE:
            return
        current = Cluster({name: topics.partitions[name] for name in led_for.partitions})
        if current.partitions == led_for.partitions and not (self._skipped and self._finds_uncovered(current)):
            return
        self._led_for, self._skipped = current, False
        found = None
        if self.world.extensions:
            leader = Leader(self.member.seat.member_id, self.member.seat.generation, self.share.assignors)
            found = growth(leader, current, current.partitions, self.world.described())
        if found is None:
            self.member.rejoin("cached metadata has changed", now)
        else:
            self.member.resync(leader.generation, found.epoch, found.shares, "cached metadata has changed", now)
        self._perform()

    def _finds_uncovered(self, cluster: Cluster) -> bool:
        """KIP-814: told to skip the assignment, it does not know what has come while it was away; it looks once."""
        self._skipped = False
        have = [one.member_assignment for one in self.world.described().members]
        return bool(uncovered(cluster, cluster.partitions, have))

    def _adopt(self, event: Adopt) -> None:
        assert event.epoch is None or event.epoch >= self.epoch, f"{self.name}: {event.epoch} after {self.epoch}"
        self.epoch = self.epoch if event.epoch is None else event.epoch
        change = self.share.adopt(event.protocol, event.generation, event.assignment)
        self._let_go(change.revoked)
        committed = self.world.bench.fetch()
        for where in change.added:
            self.positions[where] = max(0, committed.get(where, 0))
        if change.rejoin is not None:
            self.member.rejoin(change.rejoin, self.world.bench.now)

    def _let_go(self, partitions: list[Where]) -> None:
        self.revocations += bool(partitions)
        for where in partitions:
            self.positions.pop(where, None)

    def _work(self, now: int) -> None:
        """One record of each partition, then a commit of all of them, one at a time."""
        if self._commits or not self.positions:
            return  # nothing given, or all of it given up
        for where, offset in self.positions.items():
            self.world.processed.setdefault(where, set()).add(offset)
            self.positions[where] = offset + 1
        offsets = {where: (offset, None, -1) for where, offset in self.positions.items()}
        number = self.member.commit(offsets, now, 5_000)
        self._commits[number] = dict(self.positions)


class World:
    def __init__(
        self, partitions: dict[str, int], *, extensions: bool = False, lag_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """`extensions`: the members know that their coordinator is a Holdfast. `lag_ms`: how long the next answer is on
        its way; those of one connection come in order."""
        self.extensions = extensions
        self.lag_ms = lag_ms
        self.told_of_failures = 0
        self.bench = Bench(partition_count=1)
        self.bench.topics |= partitions
        self.cluster = Cluster(partitions)
        self.actors: list[Actor] = []
        self.processed: dict[Where, set[int]] = {}
        self.committers: dict[tuple[int, Where], str] = {}
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
        self.bench.topic_grew(topic, self.cluster.partitions[topic])

    def described(self) -> DescribedGroup:
        return self.bench.coordinator.describe_group(GROUP, 5, with_extensions=True)

    def restart_broker(self, *, only_load: bool = False) -> None:
        self.bench.restart(only_load=only_load)
        for actor in self.actors:
            actor.connection_lost()

    def run(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self.bench.advance(STEP_MS)
            for actor in list(self.actors):
                actor.turn()
            self.check()

    def ask(self, send: Send, request: Any) -> Handle:
        bench = self.bench
        if send.api is FIND_COORDINATOR:
            handle = Handle("FindCoordinator")
            handle.answer(coordinator_at())
            return handle
        if send.api is JOIN_GROUP:
            return bench.join(
                request.member_id,
                instance=request.group_instance_id,
                offered=[(one.name, one.metadata) for one in request.protocols],
                session_ms=request.session_timeout_ms,
                rebalance_ms=request.rebalance_timeout_ms,
            )
        if send.api is SYNC_GROUP:
            return bench.sync(
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
            return bench.heartbeat_later(request.member_id, request.generation_id, instance=request.group_instance_id)
        if send.api is LEAVE_GROUP:
            return bench.leave(*((one.member_id, one.group_instance_id) for one in request.members))
        assert send.api is OFFSET_COMMIT
        return self._commit(request)

    def _commit(self, request: Any) -> Handle:
        offsets = {
            (topic.name, one.partition_index): one.committed_offset
            for topic in request.topics
            for one in topic.partitions
        }
        handle = self.bench.commit(
            offsets,
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            instance=request.group_instance_id,
        )
        if not handle.parked:
            for where, code in handle.reply.items():
                if not code:
                    self._accepted(request.generation_id_or_member_epoch, where, request.member_id, offsets[where])
        return handle

    def _accepted(self, generation: int, where: Where, member_id: str, offset: int) -> None:
        """In one generation a partition has one committer, and nobody commits what was not processed."""
        key = generation, where
        seat = self.committers.setdefault(key, member_id)
        assert self._same_seat(seat, member_id), f"{where} in generation {generation}: {seat} and {member_id}"
        assert offset - 1 in self.processed[where], f"{where} committed at {offset}, which nobody processed"

    def _same_seat(self, first: str, second: str) -> bool:
        """A static member that came back has another id in the same generation; the ids begin with the instance's."""
        return first == second or first.rsplit("-", 1)[0].split("-")[0] == second.rsplit("-", 1)[0].split("-")[0] != ""

    def check_loss(self, actor: Actor, *, lost: bool) -> None:
        """A dynamic member gives its partitions up for lost only if the coordinator has it no more: a static one may be
        left behind by a generation, and keep its seat."""
        if lost and actor.positions and actor.instance_id is None:
            members = [one.member_id for one in self.described().members]
            assert actor.last_member_id not in members, f"{actor.name} gave up {sorted(actor.positions)} for nothing"

    def check(self) -> None:
        stable = [one for one in self.actors if one.member.phase is Phase.STABLE and not one.over]
        newest = max((one.member.seat.generation for one in stable), default=-1)
        owners: dict[Where, str] = {}
        for one in stable:
            if one.member.seat.generation != newest:
                continue
            for where in one.share.owned:
                # Of two processes with one instance id the older believes in its seat until it next asks.
                owner = owners.setdefault(where, one.name)
                assert owner == one.name, f"{where} belongs to {owner} and {one.name} in generation {newest}"

    @property
    def is_settled(self) -> bool:
        """Everybody has a seat in one generation, and every partition has an owner."""
        alive = [one for one in self.actors if not one.over]
        if any(one.member.phase is not Phase.STABLE for one in alive):
            return False
        owned = sorted(where for one in alive for where in one.share.owned)
        everything = sorted(
            (name, number) for name, count in self.cluster.partitions.items() for number in range(count)
        )
        return len({one.member.seat.generation for one in alive}) == 1 and owned == everything
