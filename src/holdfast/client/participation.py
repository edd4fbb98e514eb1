"""A consumer's part in its group: does what the membership asks of the application, in the application's own thread.

`attend` is called by every poll. It gives up partitions before a join, decides who gets what if this member leads,
takes over what was assigned, and watches the topics. What cannot be done because a broker does not answer is tried
again at the next poll, while the driver's heartbeats keep the seat.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

from holdfast.assignors.interface import Cluster, RebalanceProtocol
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.coordinator import GroupCoordinator
from holdfast.client.driver import Driver, Event, now_ms
from holdfast.client.errors import AssignorError, CallbackError, ConnectionFailed, GroupError, HoldfastError, TopicError
from holdfast.client.join_desk import JoinDesk
from holdfast.client.metadata import Metadata, metadata_request, read_metadata
from holdfast.client.network import Network
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.client.outcomes import exception
from holdfast.client.topics import Topics
from holdfast.membership.coverage import uncovered
from holdfast.membership.effects import Adopt, Failed, Lead, Left, Prepare
from holdfast.membership.failures import Failure, FailureKind
from holdfast.membership.leading import BadAssignment, decide, read_subscriptions, subscribed_topics
from holdfast.membership.resync import Growth, Leader, growth
from holdfast.membership.share import Change, Share
from holdfast.membership.watching import TopicWatch
from holdfast.wire.apis.metadata import METADATA
from holdfast.wire.errors import WireError

Where = tuple[str, int]
Callback = Callable[[list[Where]], None]
Begin = Callable[[list[Where], float], Mapping[Where, int]]
"""Gets the partitions and a deadline; returns their offsets."""

ATTEMPT_S: Final = 5.0
"""How long one poll tries to reach a broker for the group's sake before it gives the turn back."""
DESCRIBE_S: Final = 5.0
ASK_AGAIN_MS: Final = 5_000
HAND_OVER_MS: Final = 3_000
"""How long a leader waits for those who have to give partitions up, before it looks whether that is still to come."""

logger = logging.getLogger("holdfast.client")


class Listener(Protocol):
    """What the consumer does when its partitions change."""

    def rejoining(self, staying: Collection[Where], within_ms: int) -> None:
        """Before a join through which these are kept."""

    def giving_up(self, partitions: Collection[Where], within_ms: int) -> None:
        """Before they go: the last chance to commit."""

    def revoked(self, partitions: list[Where]) -> None: ...

    def lost(self, partitions: list[Where]) -> None: ...

    def assigned(self, offsets: Mapping[Where, int]) -> None: ...


class Participation:
    def __init__(
        self,
        config: ConsumerConfig,
        listener: Listener,
        *,
        begin: Begin | None = None,
        follows_the_group: bool = False,
    ) -> None:
        """`begin` says where to begin what the group has no offset for, instead of auto.offset.reset."""
        self.share = Share(config.assignors, config.rack, follows_the_group=follows_the_group)
        self._begin = begin or self._reset
        self.network = Network(config.network)
        self.coordinator = GroupCoordinator(self.network, config.membership.group_id)
        self.generation = -1
        self.epoch: int | None = None
        """The assignment epoch, from a coordinator that has one."""
        self.member_id = ""
        self.failure: HoldfastError | None = None
        self._config = config
        self._listener = listener
        self._driver = Driver(config.membership, Network(config.network), f"holdfast-{config.membership.group_id}")
        self._topics: Topics | None = None
        self._watch = TopicWatch(config.metadata_rebalance_min_interval_ms)
        self._watched: frozenset[str] = frozenset()
        self._undone: Event | None = None
        self._to_start: set[Where] = set()
        self._skipped = False
        self._hands_over = False
        self._coverage_due: int | None = None
        self._metadata: Metadata | None = None
        self._metadata_due: int | None = None
        self._callback_error: CallbackError | None = None
        self._complain_at = 0

    # -- the application's commands ------------------------------------------------------------------------------------

    @property
    def driver(self) -> Driver:
        return self._driver

    def join_through(self, desk: JoinDesk) -> None:
        """Before `subscribe`: join together with the others who were given this desk, where that can be done."""
        self._driver.join_through(desk)

    @property
    def is_subscribed(self) -> bool:
        return self._topics is not None

    @property
    def has_news(self) -> bool:
        """Whether the group wants something of the application."""
        return self._driver.has_events

    def subscribe(self, topics: Topics) -> None:
        """Join the group, or tell it that the topics have changed."""
        if self.failure is not None:
            raise self.failure
        self._topics = topics
        if not topics.patterns:
            self.share.topics = topics.names
        self._complain_at = now_ms() + self._config.membership.request_timeout_ms
        self.start()
        self._driver.polled()
        self._driver.do(lambda membership, now: membership.join(now))

    def start(self) -> None:
        self._driver.start()

    def leave(self, reason: str, deadline: float, *, even_if_static: bool = False) -> None:
        """Give everything up and, unless the seat is to be kept, say so. Waits until it was heard, or the deadline."""
        if self._topics is None:
            return
        self._topics = None
        self._undone = None
        self._give_up(lost=False, leaving=True, within_ms=max(0, int((deadline - time.monotonic()) * 1000)))
        self._to_start.clear()
        self._watch.stop()
        self._metadata_due = self._coverage_due = None
        self.generation, self.member_id, self.epoch = -1, "", None
        if not self._driver.is_alive:
            return
        if self.failure is not None and not isinstance(self.failure, AssignorError):
            return  # there is no seat to leave
        self._driver.do(lambda membership, now: membership.leave(reason, now, even_if_static=even_if_static))
        self._wait_until_left(deadline)

    def _wait_until_left(self, deadline: float) -> None:
        while time.monotonic() < deadline and self._driver.is_alive:
            match self._driver.take_event(min(0.1, max(0.0, deadline - time.monotonic()))):
                case Left():
                    return
                case Failed(failure) if self.failure is None:
                    self._failed(failure)  # whoever subscribes again must hear of it
                    return

    def close(self) -> None:
        self._driver.stop()
        self.network.close()

    # -- every poll ----------------------------------------------------------------------------------------------------

    def attend(self, *, polled: bool = True) -> list[str]:
        """Do what the group asks for. Returns the topics that were subscribed to and turned out not to exist.

        `polled`: this is the application coming by. If not, it must say so itself (`driver.polled`), or it is taken for
        dead after max.poll.interval.ms.
        """
        if self.failure is not None:
            raise self.failure
        if polled:
            self._driver.polled()
        missing: list[str] = []
        while (event := self._next_event()) is not None:
            try:
                missing += self._handle(event)
            except BaseException as error:
                # Also after an interrupt: the group waits for what was not done, and nobody would ask for it again.
                self._undone = event if self.failure is None and self._topics is not None else None
                if not isinstance(error, ConnectionFailed | GroupError | TopicError) or not error.retriable:
                    raise
                logger.warning("tried again at the next poll: %s", error)
                break
        self._check_alive()
        self._start_reading()
        self._look_at_topics()
        self.raise_callback_error()
        self._complain_if_unreachable()
        return missing

    def _check_alive(self) -> None:
        if self._topics is not None and not self._driver.is_alive and not self._driver.has_events:
            message = (
                "the thread of this membership is gone; after a fork the child makes a consumer of its own, and the "
                "parent goes on with this one"
            )
            raise self._failed(Failure(FailureKind.REFUSED, message))

    def raise_callback_error(self) -> None:
        """What a callback raised while the group's work was done, now that it is."""
        raised, self._callback_error = self._callback_error, None
        if raised is not None:
            raise raised

    def _complain_if_unreachable(self) -> None:
        """A coordinator that was there will be there again; one that never was is a mistake in the settings, likely."""
        trouble = self._driver.trouble
        if trouble is None or self._driver.was_reached or now_ms() < self._complain_at:
            return
        self._complain_at = now_ms() + self._config.membership.request_timeout_ms
        group_id = self._config.membership.group_id
        raise ConnectionFailed(f"the coordinator of group {group_id!r} was not reached yet: {trouble}") from trouble

    def _next_event(self) -> Event | None:
        event, self._undone = self._undone, None
        return event or self._driver.take_event()

    def _handle(self, event: Event) -> list[str]:
        match event:
            case Prepare():
                self._prepare(event)
            case Lead():
                return self._lead(event)
            case Adopt():
                self._adopt(event)
            case Failed(failure):
                self._fail(failure)
            case Left():
                pass
        return []

    # -- before a join -------------------------------------------------------------------------------------------------

    def _prepare(self, event: Prepare) -> None:
        if self._topics is None:
            return
        self._watch.stop()
        if self._topics.patterns:
            # Everybody looks again before they join, so that one rebalance is enough for all of them.
            found = self.network.metadata(None, time.monotonic() + ATTEMPT_S)
            self.share.topics = self._topics.matched(found)
        self._give_up(lost=event.lost)
        number, protocols = event.number, self.share.protocols()
        self._driver.do(lambda membership, now: membership.prepared(number, protocols, now))

    def _give_up(self, *, lost: bool, leaving: bool = False, within_ms: int | None = None) -> None:
        if not lost:
            within_ms = self._config.membership.request_timeout_ms if within_ms is None else within_ms
            going = set(self.share.going(leaving=leaving))
            if not leaving:
                self._listener.rejoining(self.share.owned - going - self._to_start, within_ms)
            self._listener.giving_up(going - self._to_start, within_ms)
        given_up = self.share.give_up(lost=lost, leaving=leaving)
        gone = set(given_up.revoked) | set(given_up.lost)
        never_started = gone & self._to_start
        self._to_start -= gone
        self._call("on_revoke", self._listener.revoked, [one for one in given_up.revoked if one not in never_started])
        self._call("on_lost", self._listener.lost, [one for one in given_up.lost if one not in never_started])

    # -- leading -------------------------------------------------------------------------------------------------------

    def _lead(self, event: Lead) -> list[str]:
        subscriptions = read_subscriptions(event.members)
        topics = subscribed_topics(subscriptions)
        found = self.network.metadata(topics, time.monotonic() + ATTEMPT_S)
        cluster = found.cluster(topics)
        self._watched = frozenset(topics)
        self._watch.start(cluster)
        generation = event.generation
        self._skipped, self._hands_over = event.skip, False
        if event.skip:
            # KIP-814: the assignment stands. Whether it still covers every partition is looked at once it is adopted.
            self._driver.do(lambda membership, now: membership.decided(generation, {}, now))
            return []
        assignor = self.share.assignors[event.protocol]
        try:
            decision = decide(assignor, cluster, subscriptions)
        except BadAssignment as error:
            self._cannot_assign(generation, error, len(topics))
            return []
        if assignor.protocol is RebalanceProtocol.COOPERATIVE:
            self._hands_over = bool(uncovered(cluster, topics, decision.values()))
        self._driver.do(lambda membership, now: membership.decided(generation, decision, now))
        return sorted(self.share.topics - found.topics.keys())

    def _cannot_assign(self, generation: int, error: BadAssignment, topics: int) -> None:
        message = f"{error}; this member led group {self._config.membership.group_id!r} with {topics} topics"
        if not self._driver.has_extensions:
            self._driver.do(lambda membership, _now: membership.cannot_decide(generation, message))
            raise self._failed(Failure(FailureKind.ASSIGNOR, message), error) from error
        # The coordinator lets somebody else lead; if that does not help either, `Failed` says so.
        logger.warning("%s", message)
        self._watch.stop()
        fault = error.fault
        self._driver.do(lambda membership, now: membership.report_failure(generation, fault, message, now))

    # -- after a rebalance ---------------------------------------------------------------------------------------------

    def _adopt(self, event: Adopt) -> None:
        if self._topics is None:
            return
        try:
            change = self.share.adopt(event.protocol, event.generation, event.assignment)
        except WireError as error:
            message = f"the assignment that the leader made cannot be read: {error}; see which client leads the group"
            raise self._failed(Failure(FailureKind.ASSIGNOR, message), error) from error
        self.generation, self.member_id, self.epoch = event.generation, event.member_id, event.epoch
        going = [where for where in change.revoked if where not in self._to_start]
        lost = [where for where in change.lost if where not in self._to_start]
        self._to_start.difference_update(change.revoked, change.lost)
        self._call("on_lost", self._listener.lost, lost)
        self._to_start.update(change.added)
        try:
            if going:
                self._listener.giving_up(going, self._config.membership.request_timeout_ms)
        finally:  # also if it is interrupted: from here on they are not this member's, and the group waits for its join
            self._take_over(event, change, going)

    def _take_over(self, event: Adopt, change: Change, going: list[Where]) -> None:
        if not event.is_leader:
            self._watch.stop()
        self._coverage_due = self._when_to_look_at_coverage() if event.is_leader else None
        self._metadata_due = now_ms() + self._config.metadata_max_age_ms
        if change.rejoin is not None:
            reason = change.rejoin
            self._driver.do(lambda membership, now: membership.rejoin(reason, now))
        elif not change.added and not event.quiet:
            self._call("on_assign", lambda _none: self._listener.assigned({}), [], even_if_empty=True)
        self._call("on_revoke", self._listener.revoked, going)

    def _start_reading(self) -> None:
        """Find out where to begin, and begin. Until that is known the partitions wait."""
        if not self._to_start or self._undone is not None:
            return
        wanted = sorted(self._to_start)
        try:
            offsets = self.starting_offsets(wanted, time.monotonic() + ATTEMPT_S)
        except HoldfastError as error:
            if not error.retriable:
                raise
            logger.warning("tried again at the next poll: %s", error)
            return
        self._to_start.clear()
        try:
            self._call("on_assign", lambda _new: self._listener.assigned(offsets), wanted)
        except BaseException:  # an interrupt: whether they are being read is not known
            self._to_start.update(self.share.owned.intersection(wanted))
            raise

    def starting_offsets(self, partitions: Collection[Where], deadline: float) -> dict[Where, int]:
        """The group's offsets; where it has none, what auto.offset.reset says."""
        committed = self.coordinator.fetch_offsets(partitions, deadline)
        offsets = {where: committed[where].offset for where in partitions if where in committed}
        unknown = [where for where in partitions if where not in committed]
        return offsets | dict(self._begin(unknown, deadline)) if unknown else offsets

    def _reset(self, unknown: list[Where], deadline: float) -> dict[Where, int]:
        if self._config.reset == "error":
            names = ", ".join(f"{topic}-{partition}" for topic, partition in unknown)
            raise GroupError(
                f"group {self._config.membership.group_id!r} has no offset for {names}, and auto.offset.reset is error"
                ": commit where to begin, or set it to earliest or latest"
            )
        when = EARLIEST if self._config.reset == "earliest" else LATEST
        read_committed = self._config.read_committed
        return list_offsets(self.network, dict.fromkeys(unknown, when), deadline, read_committed=read_committed)

    # -- the leader's eye ----------------------------------------------------------------------------------------------

    def _look_at_topics(self) -> None:
        """Ask for the topics now and then, and rebalance if they are no longer what the assignment was made for."""
        now = now_ms()
        if self._coverage_due is not None and now >= self._coverage_due:
            self._look_at_coverage()
        found, self._metadata = self._metadata, None
        if found is not None:
            self._compare(found, now)
        if self._metadata_due is None or now < self._metadata_due or self._topics is None:
            return
        self._metadata_due = now + self._config.metadata_max_age_ms
        wanted = None if self._topics.patterns else self._watched
        if wanted is None or self._watch.is_on:
            self._driver.ask_coordinator(
                METADATA, lambda version: metadata_request(wanted, version), self._config.api_timeout_ms, self._take
            )

    def _take(self, response: Any, _now: int) -> None:
        """In the driver's thread."""
        if response is not None and not response.error_code:
            self._metadata = read_metadata(response)

    def _compare(self, found: Metadata, now: int) -> None:
        topics = self._topics
        if topics is None:
            return
        if topics.patterns and topics.matched(found) != self.share.topics:
            due = self._watch.changed(now)
        else:
            due = self._watch.seen(found.cluster(self._watched), now)
        if due:
            self._grow_or_rejoin(found.cluster(self._watched), "cached metadata has changed")
        elif self._watch.act_at is not None:
            self._metadata_due = min(self._metadata_due or self._watch.act_at, self._watch.act_at)

    def _when_to_look_at_coverage(self) -> int | None:
        if self._skipped:
            return now_ms()
        return now_ms() + HAND_OVER_MS if self._hands_over else None

    def _look_at_coverage(self) -> None:
        self._coverage_due = None
        deadline = time.monotonic() + DESCRIBE_S
        try:
            found = self.network.metadata(self._watched, deadline)
            described = self.coordinator.describe(deadline)
        except HoldfastError as error:
            logger.warning("whether every partition has an owner could not be asked: %s", error)
            self._coverage_due = now_ms() + ASK_AGAIN_MS
            return
        assignments = [member.member_assignment for member in described.members]
        bare = uncovered(found.cluster(self._watched), self._watched, assignments)
        if bare and described.group_state == "Stable":
            reason = f"{len(bare)} partitions have no owner, {bare[0][0]}-{bare[0][1]} among them"
            self._grow_or_rejoin(found.cluster(self._watched), reason)

    def _grow_or_rejoin(self, cluster: Cluster, reason: str) -> None:
        """The topics have changed. If they only grew, the coordinator may let the leader hand out what has come without
        a rebalance; tried once, and everywhere else the group rebalances."""
        grown = self._growth(cluster) if self._driver.has_extensions and self._watch.only_grew(cluster) else None
        if grown is None:
            self._driver.do(lambda membership, now: membership.rejoin(reason, now))
            return
        self._watch.start(cluster)
        self._skipped = self._hands_over = False
        generation, epoch, shares = self.generation, grown.epoch, grown.shares
        self._driver.do(lambda membership, now: membership.resync(generation, epoch, shares, reason, now))

    def _growth(self, cluster: Cluster) -> Growth | None:
        try:
            described = self.coordinator.describe(time.monotonic() + DESCRIBE_S)
        except HoldfastError as error:
            logger.warning("what the members have could not be asked, so the group rebalances: %s", error)
            return None
        leader = Leader(self.member_id, self.generation, self.share.assignors)
        return growth(leader, cluster, self._watched, described)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _fail(self, failure: Failure) -> None:
        """The seat is gone for good: what it came with is lost, and every further call says why."""
        error = self._failed(failure)
        self._give_up(lost=True)
        if failure.kind is FailureKind.FENCED:
            error = self.failure = exception(
                Failure(failure.kind, f"{failure.message}{self._holder()}", failure.code), fatal=True
            )
        raise error

    def _failed(self, failure: Failure, _cause: BaseException | None = None) -> HoldfastError:
        self.failure = exception(failure, fatal=True)
        return self.failure

    def _holder(self) -> str:
        """Who has the seat now, if we may know."""
        instance_id = self._config.membership.group_instance_id
        try:
            described = self.coordinator.describe(time.monotonic() + DESCRIBE_S)
        except HoldfastError:
            return ""
        for member in described.members:
            if member.group_instance_id == instance_id:
                return (
                    f". The seat is held by member {member.member_id!r}; the broker shows client id "
                    f"{member.client_id!r} and host {member.client_host} for it"
                )
        return ""

    def _call(self, name: str, callback: Callback, partitions: list[Where], *, even_if_empty: bool = False) -> None:
        """The group goes on whatever the application's callback does; the poll raises what it raised."""
        if not partitions and not even_if_empty:
            return
        try:
            callback(partitions)
        except Exception as error:  # noqa: BLE001 - the application's own, whatever it is
            if self._callback_error is None:
                self._callback_error = CallbackError(f"{name} raised {type(error).__name__}: {error}")
                self._callback_error.__cause__ = error
