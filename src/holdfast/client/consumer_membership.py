"""A consumer's membership in its group, in the application's own thread.

Every poll of the application calls `poll`. It passes the events of the membership to the consumer coordinator and
performs the effects that it returns: blocking requests, callbacks, and commands for the membership's thread. If a
broker does not respond, the next poll tries again. Heartbeats keep the membership meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol, TypeVar

from holdfast.client.clock import Clock
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.coordinator_client import CoordinatorClient
from holdfast.client.errors import (
    AssignorError,
    CallbackError,
    ConnectionFailed,
    GroupError,
    HoldfastError,
    TopicError,
    from_failure,
)
from holdfast.client.join_batcher import JoinBatcher
from holdfast.client.membership_thread import MembershipThread
from holdfast.client.metadata import Metadata, metadata_request, read_metadata
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.client.runtime import Runtime
from holdfast.client.subscription import Subscription
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
from holdfast.membership.effects import Failed, LeftGroup, MembershipEvent
from holdfast.membership.failures import Failure, FailureKind
from holdfast.membership.owned_partitions import OwnedPartitions
from holdfast.types import TopicPartition
from holdfast.wire.apis.metadata import METADATA

InitialOffsets = Callable[[list[TopicPartition], float], Mapping[TopicPartition, int]]
"""Gets the partitions and a deadline; returns their offsets."""

ATTEMPT_TIMEOUT_S: Final = 5.0
"""How long one poll tries to reach a broker for a group request before it returns."""
DESCRIBE_TIMEOUT_S: Final = 5.0
_LEAVE_CHECK_S: Final = 0.1

T = TypeVar("T")
logger = logging.getLogger("holdfast.client")


class RebalanceListener(Protocol):
    """The reactions of the consumer to changes of its partitions."""

    def before_rejoin(self, staying: Collection[TopicPartition], within_ms: int) -> None:
        """Called before a join in which these partitions are kept."""

    def before_revoke(self, partitions: Collection[TopicPartition], within_ms: int) -> None:
        """The last chance to commit."""

    def revoked(self, partitions: list[TopicPartition]) -> None: ...

    def lost(self, partitions: list[TopicPartition]) -> None: ...

    def assigned(self, offsets: Mapping[TopicPartition, int]) -> None: ...


class ConsumerMembership:
    def __init__(
        self,
        config: ConsumerConfig,
        listener: RebalanceListener,
        *,
        runtime: Runtime,
        initial_offsets: InitialOffsets | None = None,
        protocol_follows_group: bool = False,
    ) -> None:
        """`initial_offsets` returns the start of partitions without a committed offset, instead of
        auto.offset.reset."""
        settings = config.membership
        self.cluster = ClusterClient(config.network, runtime=runtime)
        """The brokers that have the records."""
        self._group_cluster = self.cluster.for_groups(config.group_network)
        self.coordinator = CoordinatorClient(self._group_cluster, settings.group_id)
        self.failure: HoldfastError | None = None
        self._consumer_coordinator = ConsumerCoordinator(
            settings,
            OwnedPartitions(config.assignors, config.rack, protocol_follows_group=protocol_follows_group),
            metadata_max_age_ms=config.metadata_max_age_ms,
            metadata_rebalance_min_interval_ms=config.metadata_rebalance_min_interval_ms,
        )
        self._initial_offsets = initial_offsets or self._reset_offsets
        self._config = config
        self._clock: Clock = runtime.clock
        self._listener = listener
        self._membership_thread = MembershipThread(
            settings, ClusterClient(config.group_network, runtime=runtime), f"holdfast-{settings.group_id}"
        )
        self._subscription: Subscription | None = None
        self._retry_event: MembershipEvent | None = None
        self._received_metadata: Metadata | None = None
        self._callback_error: CallbackError | None = None
        self._report_unreachable_at = 0

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def membership_thread(self) -> MembershipThread:
        return self._membership_thread

    @property
    def owned_partitions(self) -> OwnedPartitions:
        return self._consumer_coordinator.owned_partitions

    @property
    def generation_id(self) -> int:
        return self._consumer_coordinator.generation_id

    @property
    def member_id(self) -> str:
        return self._consumer_coordinator.member_id

    @property
    def epoch(self) -> int | None:
        """The assignment epoch, if the coordinator has one."""
        return self._consumer_coordinator.epoch

    @property
    def is_subscribed(self) -> bool:
        return self._subscription is not None

    @property
    def has_events(self) -> bool:
        """Whether there is work for `poll`."""
        return self._membership_thread.has_events

    # -- the application's commands ------------------------------------------------------------------------------------

    def use_batcher(self, batcher: JoinBatcher) -> None:
        """Join together with the other members that use this batcher, if the broker supports it. Call it before
        `subscribe`."""
        self._membership_thread.use_batcher(batcher)

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group, or rejoin it because the topics have changed."""
        if self.failure is not None:
            raise self.failure
        self._subscription = subscription
        self._consumer_coordinator.subscribe(None if subscription.patterns else subscription.names)
        self._report_unreachable_at = self._clock.now_ms() + self._config.membership.request_timeout_ms
        self.start()
        self._membership_thread.touch_poll()
        self._membership_thread.submit(lambda membership, now: membership.join(now))

    def start(self) -> None:
        self._membership_thread.start()

    def leave(self, reason: str, deadline: float, *, even_if_static: bool = False) -> None:
        """Revoke all partitions and leave the group. A static member stays in the group unless `even_if_static`. Waits
        for the response, or until the deadline."""
        if self._subscription is None:
            return
        self._subscription = None
        self._retry_event = None
        self._run(self._consumer_coordinator.leave(max(0, int((deadline - self._clock.now()) * 1000))))
        if not self._membership_thread.is_alive:
            return
        if self.failure is not None and not isinstance(self.failure, AssignorError):
            return  # the coordinator has no such member
        self._membership_thread.submit(
            lambda membership, now: membership.leave(reason, now, even_if_static=even_if_static)
        )
        self._wait_until_left(deadline)

    def _wait_until_left(self, deadline: float) -> None:
        while (left := deadline - self._clock.now()) > 0 and self._membership_thread.is_alive:
            match self._membership_thread.next_event(min(_LEAVE_CHECK_S, left)):
                case LeftGroup():
                    return
                case Failed(failure) if self.failure is None:
                    self._record_failure(failure)  # the next subscribe() raises it
                    return

    def close(self) -> None:
        self._membership_thread.stop()
        self._group_cluster.close()
        self.cluster.close()

    # -- every poll ----------------------------------------------------------------------------------------------------

    def poll(self, *, polled: bool = True) -> list[str]:
        """Handle the events of the group. Returns the subscribed topics that do not exist.

        `polled`: this is a poll of the application. Otherwise the application must call `membership_thread.touch_poll`,
        or this member leaves the group after max.poll.interval.ms.
        """
        if self.failure is not None:
            raise self.failure
        if polled:
            self._membership_thread.touch_poll()
        missing = self._handle_events()
        self._check_alive()
        if self._retry_event is None and self._consumer_coordinator.awaits_offsets:
            self._run(self._consumer_coordinator.start_partitions())
        self._run(self._consumer_coordinator.check_metadata(self._take_metadata()))
        self.raise_callback_error()
        self._raise_if_unreachable()
        return missing

    def _handle_events(self) -> list[str]:
        missing: list[str] = []
        while (event := self._next_event()) is not None:
            try:
                missing += self._run(self._consumer_coordinator.handle(event))
            except BaseException as error:
                # Also after an interrupt, because the group waits for this event and it is not sent twice.
                self._retry_event = event if self.failure is None and self._subscription is not None else None
                if not isinstance(error, ConnectionFailed | GroupError | TopicError) or not error.retriable:
                    raise
                logger.warning("the next poll tries again after an error: %s", error)
                break
        return missing

    def _next_event(self) -> MembershipEvent | None:
        event, self._retry_event = self._retry_event, None
        return event or self._membership_thread.next_event()

    def _check_alive(self) -> None:
        thread = self._membership_thread
        if self._subscription is not None and not thread.is_alive and not thread.has_events:
            message = (
                "the thread of this membership is gone; after a fork the child makes a consumer of its own, and the "
                "parent goes on with this one"
            )
            raise self._record_failure(Failure(FailureKind.REFUSED, message))

    def raise_callback_error(self) -> None:
        """Raises the exception of a callback after all events of the group are handled."""
        raised, self._callback_error = self._callback_error, None
        if raised is not None:
            raise raised

    def _raise_if_unreachable(self) -> None:
        """A coordinator that was connected before will probably return. If none was ever connected, a setting may be
        wrong."""
        error = self._membership_thread.last_error
        if error is None or self._membership_thread.was_connected:
            return
        now = self._clock.now_ms()
        if now < self._report_unreachable_at:
            return
        self._report_unreachable_at = now + self._config.membership.request_timeout_ms
        group_id = self._config.membership.group_id
        raise ConnectionFailed(f"the coordinator of group {group_id!r} was not reached yet: {error}") from error

    # -- effects -------------------------------------------------------------------------------------------------------

    def _run(self, steps: Steps[T]) -> T:
        """Perform each effect and pass its result or exception to the next step."""
        try:
            self._advance()
            effect = next(steps)
            while True:
                try:
                    result = self._perform(effect)
                except BaseException as error:  # noqa: BLE001 - the steps raise it
                    self._advance()
                    effect = steps.throw(error)
                else:
                    self._advance()
                    effect = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    def _advance(self) -> None:
        self._consumer_coordinator.advance(self._clock.now_ms(), has_extensions=self._membership_thread.has_extensions)

    def _perform(self, effect: ConsumerEffect) -> Any:
        timeout = self._clock.now() + ATTEMPT_TIMEOUT_S
        match effect:
            case BeforeRejoin(staying, timeout_ms):
                self._listener.before_rejoin(staying, timeout_ms)
            case BeforeRevoke(partitions, timeout_ms):
                self._listener.before_revoke(partitions, timeout_ms)
            case PartitionsRevoked(partitions):
                self._run_callback("on_revoke", lambda: self._listener.revoked(list(partitions)))
            case PartitionsLost(partitions):
                self._run_callback("on_lost", lambda: self._listener.lost(list(partitions)))
            case PartitionsAssigned(offsets):
                self._run_callback("on_assign", lambda: self._listener.assigned(offsets))
            case ResolveTopics():
                assert self._subscription is not None
                return self._subscription.resolve(self.cluster.metadata(None, timeout))
            case FetchCluster(topics):
                return self.cluster.metadata(topics, timeout).cluster(topics)
            case FetchStartOffsets(partitions):
                return self._fetch_start_offsets(partitions, timeout)
            case DescribeGroup():
                return self._describe_group(effect)
            case RequestMetadata(topics):
                self._request_metadata(topics)
            case RecordFailure(failure):
                self._record_failure(failure)
            case RaiseFailure(failure, cause):
                raise self._record_failure(failure) from cause
            case LogWarning(message):
                logger.warning("%s", message)
            case _:
                self._membership_thread.submit(effect)
        return None

    def _run_callback(self, name: str, callback: Callable[[], None]) -> None:
        """An exception of the application's callback does not stop the group. The poll raises it."""
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - any exception of the application
            if self._callback_error is None:
                self._callback_error = CallbackError(f"{name} raised {type(error).__name__}: {error}")
                self._callback_error.__cause__ = error

    def _record_failure(self, failure: Failure) -> HoldfastError:
        self.failure = from_failure(failure, fatal=True)
        return self.failure

    def _describe_group(self, effect: DescribeGroup) -> GroupView | None:
        deadline = self._clock.now() + DESCRIBE_TIMEOUT_S
        try:
            found = self.cluster.metadata(effect.topics, deadline) if effect.topics else Metadata()
            return GroupView(self.coordinator.describe(deadline), found.cluster(effect.topics))
        except HoldfastError as error:
            if effect.if_unanswered:
                logger.warning("%s: %s", effect.if_unanswered, error)
            return None

    def _request_metadata(self, topics: frozenset[str] | None) -> None:
        if self._group_cluster is self.cluster:
            self._request_metadata_of_coordinator(topics)
            return
        # The membership's thread has no connection to the brokers of the records, and must not wait for one because of
        # the heartbeats. This thread has one, unless these brokers have become unavailable.
        try:
            self._received_metadata = self.cluster.metadata(topics, self._clock.now() + ATTEMPT_TIMEOUT_S)
        except HoldfastError as error:
            if not error.retriable:
                raise
            logger.warning("whether the topics have changed could not be asked: %s", error)

    def _request_metadata_of_coordinator(self, topics: frozenset[str] | None) -> None:
        def received(response: Any, _now: int) -> None:
            """In the membership's thread."""
            if response is not None and not response.error_code:
                self._received_metadata = read_metadata(response)

        self._membership_thread.send_to_coordinator(
            METADATA, lambda version: metadata_request(topics, version), self._config.api_timeout_ms, received
        )

    def _take_metadata(self) -> MetadataView | None:
        found, self._received_metadata = self._received_metadata, None
        if found is None or self._subscription is None:
            return None
        monitored = self._consumer_coordinator.monitored_topics
        return MetadataView(self._subscription.resolve(found), found.cluster(monitored))

    # -- where to begin ------------------------------------------------------------------------------------------------

    def _fetch_start_offsets(
        self, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, int] | None:
        try:
            return self.starting_offsets(partitions, deadline)
        except HoldfastError as error:
            if not error.retriable:
                raise
            logger.warning("the next poll tries again after an error: %s", error)
            return None

    def starting_offsets(self, partitions: Collection[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
        """The committed offsets, or the offsets that auto.offset.reset selects."""
        committed = self.coordinator.fetch_offsets(partitions, deadline)
        offsets = {where: committed[where].offset for where in partitions if where in committed}
        unknown = [where for where in partitions if where not in committed]
        return offsets | dict(self._initial_offsets(unknown, deadline)) if unknown else offsets

    def _reset_offsets(self, unknown: list[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
        if self._config.reset == "error":
            names = ", ".join(f"{topic}-{partition}" for topic, partition in unknown)
            raise GroupError(
                f"group {self._config.membership.group_id!r} has no offset for {names}, and auto.offset.reset is error"
                ": commit where to begin, or set it to earliest or latest"
            )
        when = EARLIEST if self._config.reset == "earliest" else LATEST
        read_committed = self._config.read_committed
        return list_offsets(self.cluster, dict.fromkeys(unknown, when), deadline, read_committed=read_committed)
