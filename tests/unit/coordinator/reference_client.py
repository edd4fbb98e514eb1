"""A whole consumer as a model: what it asks, what it does with every answer, and what it believes that it owns.

Eager ones give everything up before they join and write v0 subscriptions. Cooperative ones keep what they have, write
it into their subscription, and join again after they gave something up (KIP-429). Each has a clock of its own: one that
was not answered for as long as its session gives everything up by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.coordinator.classic.member import Client, MemberConnection
from holdfast.wire.apis.join_group import JoinGroupRequestProtocol
from holdfast.wire.apis.join_groups import JoinGroupsMember
from holdfast.wire.apis.sync_group import AssignmentFailure
from holdfast.wire.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import SESSION_MS, CoordinatorHarness, Handle

Owned = set[tuple[str, int]]
METADATA_MAX_AGE_MS: Final = 700
LOSES_ALL: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)
STARTS_OVER: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


def connection() -> Client:
    return Client("cid", "/127.0.0.1", MemberConnection())


def assignment(owned: Iterable[tuple[str, int]]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(owned):
        topics.setdefault(topic, []).append(partition)
    return encode_assignment(Assignment([TopicPartitions(*entry) for entry in topics.items()]))


def owned_in(entries: Iterable[TopicPartitions]) -> Owned:
    return {(entry.topic, partition) for entry in entries for partition in entry.partitions}


@dataclass(eq=False)
class ReferenceClient:
    harness: CoordinatorHarness
    topics: Mapping[str, int]
    """How many partitions each topic of the cluster has, as of now. What it works from is what it has seen of it."""
    instance: str | None
    version: int
    cooperative: bool
    reads: str = "t"
    has_tags: bool = False
    client: Client = field(default_factory=connection)
    alive: bool = True
    paused: bool = False
    fails_to_assign: bool = False

    id: str = ""
    generation: int = -1
    epoch: int = -1
    leads: bool = False
    skips: bool = False
    protocol: str | None = None
    members: list[Any] = field(default_factory=list)
    assigned_from: dict[str, int] = field(default_factory=dict)
    """What a leader knows of the topics since it last assigned, or took over from one who had."""
    last_given: dict[str, Owned] = field(default_factory=dict)
    """What it assigned as the leader of this generation."""
    joined: bool = False
    synced: bool = False
    pending: Handle | None = None
    then: Callable[[Handle], None] | None = None
    asked_ms: int = 0
    _owned: Owned = field(default_factory=set)
    claimed: Owned = field(default_factory=set)
    session_until: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    next_metadata_check_ms: int = 0

    # -- what it believes ----------------------------------------------------------------------------------------------

    @property
    def owned(self) -> Owned:
        if self.harness.now >= self.session_until:
            self._owned = set()
        return self._owned if self.alive else set()

    def _lose_all(self) -> None:
        self._owned = set()

    def check_metadata(self) -> None:
        """Its metadata are renewed: now and then, when it joins, and when its connection broke."""
        self.seen, self.next_metadata_check_ms = dict(self.topics), self.harness.now + METADATA_MAX_AGE_MS

    @property
    def is_working(self) -> bool:
        return self.alive and self.synced and self.pending is None

    # -- what it asks --------------------------------------------------------------------------------------------------

    def act(self) -> None:
        """One request, if none is under way."""
        if not self.alive or self.paused or self.pending is not None:
            return
        if self.synced and self.harness.now >= self.session_until:
            self._apply_error(ErrorCode.REBALANCE_IN_PROGRESS)  # by its own clock it is out
            self._lose_all()
        if self.harness.now >= self.next_metadata_check_ms:
            self.check_metadata()
        if not self.joined:
            self._send(self.send_join(), self.after_join)
        elif not self.synced:
            self._send(self._send_sync(), self._after_sync)
        elif self.leads and any(self.seen[topic] > count for topic, count in self.assigned_from.items()):
            self._follow_growth()
        else:
            self.beat()

    def beat(self) -> None:
        handle = self.harness.heartbeat_later(self.id, self.generation, instance=self.instance, client=self.client)
        self._send(handle, self._after_heartbeat)

    def _send(self, handle: Handle, then: Callable[[Handle], None]) -> None:
        self.pending, self.then, self.asked_ms = handle, then, self.harness.now
        self.take_reply()

    def wait_for(self, handle: Handle) -> None:
        """Its entry of a JoinGroups request."""
        self._send(handle, self.after_join)

    @property
    def names(self) -> tuple[str, ...]:
        return ("cooperative-sticky",) if self.cooperative else ("range", "roundrobin")

    def before_join(self) -> bytes:
        self.check_metadata()
        if not self.cooperative:
            self._lose_all()
            return encode_subscription(Subscription([self.reads]), 0)
        self.claimed = set(self.owned)
        entries = decode_assignment(assignment(self.claimed)).assigned_partitions
        reported = Subscription([self.reads], owned_partitions=entries, generation_id=self.generation)
        return encode_subscription(reported)

    def send_join(self) -> Handle:
        return self.harness.join(
            self.id,
            instance=self.instance,
            version=self.version,
            protocols=self.names,
            metadata=self.before_join(),
            client=self.client,
        )

    def entry(self) -> JoinGroupsMember:
        metadata = self.before_join()
        return JoinGroupsMember(
            self.id, self.instance, [JoinGroupRequestProtocol(name, metadata) for name in self.names]
        )

    def _send_sync(self) -> Handle:
        given: dict[str, bytes] = {}
        failure = None
        if self.leads and not self.skips and self.members:
            self.last_given = self._assign()
            given = {member: assignment(owned) for member, owned in self.last_given.items()}
            failure = AssignmentFailure(7, "cannot") if self.fails_to_assign and self.has_tags else None
            self.fails_to_assign = False
        return self._sync(given, failure=failure)

    def _sync(self, given: Mapping[str, bytes], **tags: Any) -> Handle:
        tags.setdefault("wants_epoch", self.has_tags)
        return self.harness.sync(
            self.id,
            self.generation,
            given,
            instance=self.instance,
            version=5 if self.version >= 7 else 3,
            protocol_name=self.protocol,
            client=self.client,
            **tags,
        )

    def _follow_growth(self) -> None:
        """A topic that it assigned has more partitions: it adds them, or makes all rejoin."""
        assignments = self.resync_assignments() if self.has_tags and self.epoch >= 0 else None
        if assignments is None:
            self.joined = self.synced = False
            self.act()
            return
        self.assigned_from = {topic: self.seen[topic] for topic in self.assigned_from}
        self._send(self._sync(assignments, resync_from_epoch=self.epoch), self._after_sync)

    def resync_assignments(self) -> dict[str, bytes] | None:
        """New partitions are assigned to the members in turn. A member that took over from a leader does not know their
        assignments."""
        if self.skips or self.last_given.keys() != {member.member_id for member in self.members}:
            return None
        grown: set[str] = set()
        for topic, count in self.assigned_from.items():
            reported = {member.member_id: decode_subscription(member.metadata) for member in self.members}
            readers = sorted(member for member, subscription in reported.items() if topic in subscription.topics)
            for number in range(count, self.seen[topic]):
                reader = readers[number % len(readers)]
                self.last_given[reader].add((topic, number))
                grown.add(reader)
        return {member: assignment(self.last_given[member]) for member in grown}

    def resync(self, assignments: Mapping[str, bytes], epoch: int) -> None:
        """As an impostor would, with anything."""
        self._send(self._sync(assignments, resync_from_epoch=epoch), self._after_sync)

    # -- what it does with the answers ---------------------------------------------------------------------------------

    def take_reply(self) -> None:
        handle, then = self.pending, self.then
        if handle is not None and then is not None and not handle.is_pending:
            self.pending = self.then = None
            then(handle)

    def forget_request(self) -> None:
        """Its connection broke: no answer comes."""
        self.pending = self.then = None

    def after_join(self, handle: Handle) -> None:
        code = handle.code
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = handle.member_id
        elif code is ErrorCode.NONE:
            reply = handle.reply
            self.id, self.generation, self.protocol = reply.member_id, reply.generation_id, reply.protocol_name
            assert self.protocol in self.names, "reported of a protocol that it did not offer"
            self.leads, self.skips, self.members = reply.leader == reply.member_id, reply.skip_assignment, reply.members
            assert not self.leads or self.members, "a leader without members"
            if self.leads:
                read = {topic for member in self.members for topic in decode_subscription(member.metadata).topics}
                self.assigned_from = {topic: self.seen[topic] for topic in read}
            self.joined, self.synced = True, False
            self.session_until = max(self.session_until, self.asked_ms + SESSION_MS)
        else:
            self._apply_error(code)

    def _after_sync(self, handle: Handle) -> None:
        if handle.code is not ErrorCode.NONE:
            self._apply_error(handle.code)
            return
        reply = handle.reply
        given = owned_in(decode_assignment(reply.assignment).assigned_partitions)
        if reply.assignment_epoch >= 0:
            assert reply.assignment_epoch >= self.epoch, "the epoch went back"
            self.epoch = reply.assignment_epoch
        gives_up = (self.owned | self.claimed) - given if self.cooperative else set()
        self.claimed = set()
        self.session_until = self.asked_ms + SESSION_MS
        self._owned, self.synced = given, True
        if gives_up:
            self.joined = self.synced = False

    def _after_heartbeat(self, handle: Handle) -> None:
        if handle.code is not ErrorCode.NONE:
            self._apply_error(handle.code)
        elif self.harness.now < self.session_until:
            # One that comes later finds a client that has given everything up, and is about to join again.
            self.session_until = self.asked_ms + SESSION_MS

    def _apply_error(self, code: ErrorCode) -> None:
        self.joined = self.synced = self.leads = False
        if code in LOSES_ALL:
            self._lose_all()
            self.generation = -1
        if code in STARTS_OVER:
            self.id = ""

    # -- what happens to it --------------------------------------------------------------------------------------------

    def reconnect(self) -> None:
        """Its connection breaks, and it asks again over another one."""
        self.forget_request()
        self.check_metadata()
        old, self.client = self.client, connection()
        self.harness.disconnect(old)

    def dies(self) -> None:
        self.alive = False
        self.forget_request()
        self.harness.disconnect(self.client)

    def starts(self) -> None:
        """A new process, which remembers nothing."""
        self.alive, self.paused, self.client = True, False, connection()
        self.id, self.generation, self.epoch = "", -1, -1
        self.joined = self.synced = self.leads = False
        self._owned, self.claimed = set(), set()

    # -- what a leader does --------------------------------------------------------------------------------------------

    def _assign(self) -> dict[str, Owned]:
        reported = {member.member_id: decode_subscription(member.metadata) for member in self.members}
        given: dict[str, Owned] = {member: set() for member in reported}
        for topic in {topic for subscription in reported.values() for topic in subscription.topics}:
            readers = sorted(member for member, subscription in reported.items() if topic in subscription.topics)
            partitions = {(topic, number) for number in range(self.seen[topic])}
            claims = _claims(reported, topic) if self.cooperative else {}
            for partition, member in _sticky(readers, partitions, claims).items():
                given[member].add(partition)
        return given


def _claims(reported: Mapping[str, Subscription], topic: str) -> dict[tuple[str, int], str]:
    """Who owns what: of two that claim a partition the one with the later generation."""
    found: dict[tuple[str, int], tuple[int, str]] = {}
    for member, subscription in reported.items():
        for partition in owned_in(subscription.owned_partitions):
            claim = (subscription.generation_id, member)
            if partition[0] == topic and claim > found.get(partition, (-2, "")):
                found[partition] = claim
    return {partition: member for partition, (_, member) in found.items()}


def _sticky(readers: list[str], partitions: Owned, claims: Mapping[tuple[str, int], str]) -> dict[tuple[str, int], str]:
    """As even as can be; what somebody has to give up is nobody's this time."""
    most = -(-len(partitions) // len(readers))
    given: dict[tuple[str, int], str] = {}
    count: Counter[str] = Counter()
    for partition in sorted(partitions):
        owner = claims.get(partition)
        if owner in readers and count[owner] < most:
            given[partition] = owner
            count[owner] += 1
    for partition in sorted(partitions - given.keys()):
        if claims.get(partition) not in readers:
            reader = min(readers, key=lambda one: (count[one], one))
            given[partition] = reader
            count[reader] += 1
    return given
