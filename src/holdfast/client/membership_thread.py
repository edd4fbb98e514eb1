"""The thread of a membership. It passes the time to the state machine and sends its requests and heartbeats.

Only this thread uses the state machine. Other threads pass it commands with `submit` and take the application's events
with `next_event`. It runs no code of the application: the events (`JoinPrepare`, `LeaderElected`, `JoinComplete`) wait
until the application polls, while heartbeats continue.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.client.channels import Channels, ResponseHandler
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import AuthenticationFailed, HoldfastError, UnsupportedVersion
from holdfast.client.join_batcher import JoinBatcher, PendingJoin
from holdfast.client.transport import Waker
from holdfast.membership.effects import (
    AssignmentFailed,
    Channel,
    CloseChannels,
    CommitCompleted,
    ConnectCoordinator,
    Effect,
    Failed,
    MembershipEvent,
    SendRequest,
)
from holdfast.membership.failures import Failure, FailureKind
from holdfast.membership.machine import Membership
from holdfast.membership.phases import Phase
from holdfast.membership.requests import BuildRequest, CoordinatorNode, OffsetAndMetadata
from holdfast.membership.settings import MembershipSettings
from holdfast.types import TopicPartition
from holdfast.wire.apis.add_members_to_group import ADD_MEMBERS_TO_GROUP
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupResponse
from holdfast.wire.apis.join_groups import AS_JOIN_GROUP_VERSION
from holdfast.wire.message import Api

MAX_WAIT_MS: Final = 60_000
STOP_TIMEOUT_S: Final = 5.0

Command = Callable[[Membership, int], None]

logger = logging.getLogger("holdfast.client")


class MembershipThread:
    """The cluster client must not be used by any other thread."""

    def __init__(self, settings: MembershipSettings, cluster: ClusterClient, name: str) -> None:
        self.last_error: HoldfastError | None = None
        """Why the last attempt to connect to the coordinator failed; None while it is connected."""
        self.was_connected = False
        """Whether a coordinator was ever connected."""
        self.has_extensions = False
        """Whether the coordinator that was last connected has Holdfast's extensions of the protocol."""
        self.last_poll = 0
        """When the application last polled. The application's thread writes it; this thread passes it to the state
        machine."""
        self._membership = Membership(settings)
        self._cluster = cluster
        self.clock = cluster.clock
        self._events: deque[MembershipEvent] = deque()
        self._event_arrived = threading.Event()
        self._channels = Channels(cluster, self._record_error, self._channel_closed)
        self._join_batcher: JoinBatcher | None = None
        self._batched_join: tuple[PendingJoin, ResponseHandler] | None = None
        self._commits: dict[int, Callable[[CommitCompleted], None]] = {}
        self._commands: deque[Command] = deque()
        self._waker = Waker(cluster.clock)
        self._stopping = False
        self._last_poll_forwarded = 0
        self._poll_expired = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # -- for other threads ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A second call has no effect: a thread that has ended is not restarted."""
        if self._thread.ident is None:
            self._thread.start()

    def use_batcher(self, batcher: JoinBatcher) -> None:
        """Join together with the other members that use this batcher, if the coordinator supports it. Call it before
        `start`."""
        self._join_batcher = batcher

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def submit(self, command: Command) -> None:
        """Have this thread execute a command soon."""
        self._commands.append(command)
        self._waker.wake()

    def touch_poll(self) -> None:
        """Record a poll of the application. It must be cheap, because every poll calls it."""
        self.last_poll = self.clock.now_ms()
        if self._poll_expired:
            self._waker.wake()

    @property
    def poll_expired(self) -> bool:
        """Whether the member has left the group because the application did not poll for max.poll.interval.ms."""
        return self._poll_expired

    def wait_for_event(self, wait_s: float) -> bool:
        """Wait for an event for the application, and return whether there is one. Only the thread that takes events may
        wait."""
        if not self._events and wait_s > 0:
            self._event_arrived.clear()
            if not self._events:  # otherwise it was added between the check and the clearing
                self.clock.wait(self._event_arrived, wait_s)
        return bool(self._events)

    def next_event(self, wait_s: float = 0.0) -> MembershipEvent | None:
        """Only one thread may take events."""
        return self._events.popleft() if self.wait_for_event(wait_s) else None

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int,
        on_completed: Callable[[CommitCompleted], None],
    ) -> None:
        """Commit offsets in the current generation. `on_completed` is called once, in this thread."""

        def command(membership: Membership, now: int) -> None:
            self._commits[membership.commit(offsets, now, timeout_ms)] = on_completed

        self.submit(command)

    def send_to_coordinator(self, api: Api, build: BuildRequest, timeout_ms: int, on_response: ResponseHandler) -> None:
        """Send a request of the application on the channel of the heartbeats. `on_response` is called in this
        thread."""
        self.submit(
            lambda _membership, _now: self._send(
                Channel.COORDINATOR, api, build, api.versions[1], timeout_ms, on_response
            )
        )

    def stop(self) -> None:
        """End the thread and its connections, without waiting for requests in flight."""
        self._stopping = True
        self._cluster.close()
        self._waker.wake()
        if self._thread.is_alive():
            self.clock.join(self._thread, STOP_TIMEOUT_S)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._run_once()
        except Exception as error:
            # The application must get every error. Otherwise it would wait for partitions for ever.
            if not self._stopping:
                logger.exception("the thread of a group's member failed")
                message = f"the membership ended by a fault of its own: {type(error).__name__}: {error}"
                self._emit(Failed(Failure(FailureKind.REFUSED, message)))
        finally:
            self._membership.close()
            for channel in Channel:
                self._channels.close(channel)
            self._perform_all()
            self._cluster.close()

    def _run_once(self) -> None:
        while self._commands:
            self._commands.popleft()(self._membership, self.clock.now_ms())
        self._perform_all()
        now = self.clock.now_ms()
        self._channels.expire(now)
        self._forward_polls()
        self._membership.tick(now)
        self._poll_expired = self._membership.phase is Phase.POLL_EXPIRED
        self._perform_all()
        if not self._commands and not self._stopping:
            now = self.clock.now_ms()
            self._channels.wait_for_responses(self._waker, min(self._membership.wake_at(now), now + MAX_WAIT_MS))
        self._channels.receive()
        self._perform_all()

    def _forward_polls(self) -> None:
        last = self.last_poll
        if last != self._last_poll_forwarded:
            self._last_poll_forwarded = last
            self._membership.polled(last)

    # -- effects -------------------------------------------------------------------------------------------------------

    def _perform_all(self) -> None:
        while effects := self._membership.take_effects():
            for effect in effects:
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SendRequest():
                self._send_request(effect)
            case ConnectCoordinator(coordinator):
                self._connect_coordinator(coordinator)
            case CloseChannels(channels):
                for channel in channels:
                    self._channels.close(channel)
            case CommitCompleted():
                self._commits.pop(effect.commit_id)(effect)
            case AssignmentFailed(generation_id, code, message):
                logger.warning(
                    "the group joins again: the leader of generation %d could not assign (%d: %s)",
                    generation_id,
                    code,
                    message,
                )
            case _:
                self._emit(effect)

    def _emit(self, event: MembershipEvent) -> None:
        self._events.append(event)
        self._event_arrived.set()

    def _connect_coordinator(self, coordinator: CoordinatorNode) -> None:
        try:
            connection = self._channels.connect_coordinator(coordinator)
            versions = connection.versions.get(JOIN_GROUP.key, (0, -1))
            extensions = connection.supports(ADD_MEMBERS_TO_GROUP)
        except HoldfastError as error:
            self._record_error(error)
            self._membership.coordinator_unreachable(self.clock.now_ms())
            return
        self.last_error = None
        self.was_connected = True
        self.has_extensions = extensions
        instance_id = self._membership.instance_id
        self._membership.coordinator_connected(versions, self.clock.now_ms(), has_extensions=extensions)
        if instance_id is not None and self._membership.instance_id is None:
            logger.warning(
                "group.instance.id %r is not used (static.membership.fallback=dynamic): the broker at %s:%d knows "
                "no static members (JoinGroup up to v%d, v5 is needed). This member joins group %r as a dynamic "
                "one, and a restart of it is a rebalance",
                instance_id,
                coordinator.host,
                coordinator.port,
                versions[1],
                self._membership.settings.group_id,
            )

    def _send_request(self, send: SendRequest) -> None:
        membership, request_id = self._membership, send.request_id

        def on_response(response: Any, now: int) -> None:
            if response is None:
                membership.request_failed(request_id, now)
            else:
                membership.response_received(request_id, response, now)

        if send.api is JOIN_GROUP and self._join_batcher is not None and self.has_extensions:
            self._join_batched(self._join_batcher, send, on_response)
        else:
            self._send(send.channel, send.api, send.build, send.max_version, send.timeout_ms, on_response)

    def _send(
        self,
        channel: Channel,
        api: Api,
        build: BuildRequest,
        max_version: int,
        timeout_ms: int,
        on_response: ResponseHandler,
    ) -> None:
        try:
            self._channels.send(channel, api, build, max_version, timeout_ms, on_response)
        except UnsupportedVersion as error:
            self._membership.fail(Failure(FailureKind.UNSUPPORTED, str(error), error.code))
            on_response(None, self.clock.now_ms())
        except HoldfastError as error:
            self._record_error(error)
            self._channels.close(channel)
            on_response(None, self.clock.now_ms())

    def _channel_closed(self, channel: Channel) -> None:
        """A join in the batcher belongs to the channel of joins."""
        if channel is Channel.JOIN and self._join_batcher is not None and self._batched_join is not None:
            (join, on_response), self._batched_join = self._batched_join, None
            self._join_batcher.cancel(join)
            on_response(None, self.clock.now_ms())

    def _record_error(self, error: HoldfastError) -> None:
        if self._stopping:
            return
        self.last_error = error
        if isinstance(error, AuthenticationFailed):
            # Not retried, because a broker that counts wrong passwords would lock the account.
            self._membership.fail(Failure(FailureKind.NOT_AUTHENTICATED, str(error), error.code))
        else:
            logger.warning("%s", error)

    # -- joining together ----------------------------------------------------------------------------------------------

    def _join_batched(self, batcher: JoinBatcher, send: SendRequest, on_response: ResponseHandler) -> None:
        def joined(response: JoinGroupResponse | None) -> None:
            self.submit(lambda _membership, now: on_response(response, now) if self._take_batched(join) else None)

        def join_alone() -> None:
            self.submit(lambda _membership, _now: self._join_unbatched(send, join, on_response))

        join = PendingJoin(
            self._cluster.settings,
            self._channels.coordinator,
            send.build(AS_JOIN_GROUP_VERSION),
            self.clock.now() + send.timeout_ms / 1000,
            joined,
            join_alone,
        )
        self._batched_join = join, on_response
        batcher.submit(join)

    def _join_unbatched(self, send: SendRequest, join: PendingJoin, on_response: ResponseHandler) -> None:
        if self._take_batched(join):
            self._send(send.channel, send.api, send.build, send.max_version, send.timeout_ms, on_response)

    def _take_batched(self, join: PendingJoin) -> bool:
        """Whether this thread still waits for the join. From now on, it is no longer in the batcher."""
        if self._batched_join is None or self._batched_join[0] is not join:
            return False
        self._batched_join = None
        return True
