"""`Membership`: one member of a group, from the first JoinGroup to the LeaveGroup, as a state machine without I/O.

Its driver reports events (`response_received`, `request_failed`, `tick`, and actions of the application) and performs
the effects that `take_effects` returns. `now` is in milliseconds of any monotonic clock. The parts do not send requests
themselves: a response changes the phase, and `_send_due_requests` sends the requests of that phase.

Each part of the protocol has a module: `coordinator_discovery`, `session`, `join_phase`, `sync_phase`, `leader_resync`,
`heartbeats` and `offset_commits`. They share `core`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.membership.coordinator_discovery import CoordinatorDiscovery
from holdfast.membership.core import NEVER, MembershipCore
from holdfast.membership.effects import Channel, CloseChannels, Effect, LeftGroup
from holdfast.membership.failures import Failure
from holdfast.membership.generation import NO_GENERATION, NO_MEMBER_ID, Generation
from holdfast.membership.heartbeats import Heartbeats
from holdfast.membership.in_flight import RequestKind, Sent
from holdfast.membership.join_phase import JoinPhase
from holdfast.membership.leader_resync import LeaderResync
from holdfast.membership.offset_commits import OffsetCommits
from holdfast.membership.phases import MUST_POLL, Phase
from holdfast.membership.requests import CoordinatorNode, OffsetAndMetadata
from holdfast.membership.session import Session
from holdfast.membership.settings import MembershipSettings
from holdfast.membership.sync_phase import SyncPhase
from holdfast.types import TopicPartition


class Membership:
    def __init__(self, settings: MembershipSettings) -> None:
        core = self._core = MembershipCore(settings)
        discovery = self._discovery = CoordinatorDiscovery(core)
        session = self._session = Session(core, discovery)
        join = self._join = JoinPhase(core, discovery, session)
        self._sync = SyncPhase(core, discovery, session, join)
        self._resync = LeaderResync(core, discovery, join)
        self._heartbeats = Heartbeats(core, discovery, session, join)
        self._commits = OffsetCommits(core, discovery, join)

    @property
    def settings(self) -> MembershipSettings:
        return self._core.settings

    @property
    def instance_id(self) -> str | None:
        """Also None for a static member that has fallen back to dynamic membership."""
        return self._core.instance_id

    @property
    def phase(self) -> Phase:
        return self._core.phase

    @property
    def generation(self) -> Generation:
        return self._core.generation

    @property
    def is_leader(self) -> bool:
        return self._core.is_leader

    @property
    def coordinator(self) -> CoordinatorNode | None:
        """The coordinator, once it is connected."""
        return self._core.coordinator

    # -- queries of the driver -----------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        effects, self._core.effects = self._core.effects, []
        return effects

    def wake_at(self, now: int) -> int:
        """When `tick` is next needed, if nothing happens before."""
        if self._core.phase is Phase.CLOSED:
            return NEVER
        due = min(self._session.next_due(), self._commits.next_deadline(), self._discovery.next_due())
        if self._core.coordinator is not None:
            parts = self._join.next_due(), self._sync.next_due(), self._heartbeats.next_due(), self._commits.next_due()
            due = min(due, *parts)
        return max(now, math.ceil(due))

    def tick(self, now: int) -> None:
        if self._core.phase is Phase.CLOSED:
            return
        if self._session.poll_has_expired(now):
            self._leave_group("consumer poll timeout has expired.", Phase.POLL_EXPIRED)
        if self._session.has_expired(now):
            # No response for a whole session timeout, so the coordinator has probably moved.
            self._discovery.mark_unknown(now)
        self._commits.expire(now)
        self._send_due_requests(now)

    # -- calls of the application --------------------------------------------------------------------------------------

    def join(self, now: int) -> None:
        """Join the group, or rejoin because the subscription has changed."""
        if self._core.phase is Phase.UNJOINED:
            self._join.prepare(now, lost=False)
        else:
            self.rejoin("subscription has changed", now)

    def rejoin(self, reason: str, now: int) -> None:
        """Request a rebalance. If a join is in flight, another one follows it."""
        self._join.rejoin(reason, now)

    def join_prepared(self, attempt: int, protocols: Sequence[tuple[str, bytes]], now: int) -> None:
        """The application has revoked its partitions; `protocols` is its metadata for each protocol."""
        if self._join.prepared(attempt, protocols):
            self._send_due_requests(now)

    def assignment_ready(self, generation_id: int, assignments: Mapping[str, bytes], now: int) -> None:
        """The leader has assigned, or has skipped the assignment (KIP-814)."""
        if self._sync.assignment_ready(generation_id, assignments):
            self._send_due_requests(now)

    def assignment_failed(self, generation_id: int, message: str) -> None:
        """The assignor failed. A dynamic member leaves, so that another member can lead; a static one does not.
        `LeftGroup` follows when there is nothing more to wait for."""
        self._sync.assignment_failed(generation_id, message)

    def report_assignment_failure(self, generation_id: int, fault: int, message: str, now: int) -> None:
        """The assignor failed. A coordinator with Holdfast's extensions gets the reason. This member rejoins, and
        another may lead. Without the extensions, and after too many failures in a row, the membership ends."""
        if self._sync.report_failure(generation_id, fault, message, now):
            self._send_due_requests(now)

    def resync(self, generation_id: int, epoch: int, assignments: Mapping[str, bytes], reason: str, now: int) -> None:
        """The leader extends assignments of a stable generation: each member in `assignments` owns exactly these
        partitions from now on. If that is not possible, the group rebalances for the given reason."""
        self._resync.send(generation_id, epoch, assignments, reason, now)

    def polled(self, now: int) -> None:
        """The application has polled."""
        if self._core.phase is Phase.POLL_EXPIRED:
            self._join.prepare(now, lost=True)
        elif self._core.phase in MUST_POLL:
            self._session.polled(now)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], now: int, timeout_ms: int) -> int:
        """Commit offsets. `CommitCompleted` has the id that is returned here."""
        commit_id = self._commits.add(offsets, now, timeout_ms)
        self._send_due_requests(now)
        return commit_id

    def leave(self, reason: str, now: int, *, even_if_static: bool = False) -> None:
        """Leave the group. KIP-345: a static member stays in the group unless `even_if_static`."""
        if self._core.phase in (Phase.UNJOINED, Phase.CLOSED):
            if RequestKind.LEAVE not in self._core.in_flight:  # otherwise its response says so
                self._core.effects.append(LeftGroup())
            return
        self._leave_group(reason, Phase.UNJOINED, even_if_static=even_if_static)
        if not self._core.is_leaving:
            self._core.effects.append(LeftGroup())
        self._send_due_requests(now)

    def _leave_group(self, reason: str, phase: Phase, *, even_if_static: bool = False) -> None:
        core = self._core
        if (core.instance_id is None or even_if_static) and core.generation.member_id != NO_MEMBER_ID:
            core.prepare_leave_request(reason)
        core.cancel_join()
        core.set_generation(NO_GENERATION)
        self._join.reason = "" if phase is Phase.UNJOINED else reason
        self._join.rejoin_needed = False
        core.transition_to(phase)
        self._session.stop_poll_timer()

    def fail(self, failure: Failure) -> None:
        """End the membership because of an error of the driver that is not retriable."""
        if self._core.phase is not Phase.CLOSED:
            self._core.fail(failure)

    def close(self) -> None:
        """End without further effects. Wait for commits and for `LeftGroup` first."""
        if self._core.phase is Phase.CLOSED:
            return
        self._core.fail_all_commits("the consumer was closed before it was answered")
        self._core.transition_to(Phase.CLOSED)
        self._core.effects.append(CloseChannels((Channel.JOIN, Channel.COORDINATOR)))

    # -- events of the network -----------------------------------------------------------------------------------------

    def coordinator_connected(self, join_versions: tuple[int, int], now: int, *, has_extensions: bool = False) -> None:
        """The coordinator supports these versions of JoinGroup; `has_extensions` refers to Holdfast's."""
        if self._discovery.connected(join_versions, has_extensions=has_extensions):
            self._session.restart(now)
            self._send_due_requests(now)

    def coordinator_unreachable(self, now: int) -> None:
        self._discovery.unreachable(now)

    def response_received(self, request_id: int, response: Any, now: int) -> None:
        sent = self._core.in_flight.pop(request_id)
        if sent is not None:
            self._handle_response(sent, response, now)
            self._send_due_requests(now)

    def _handle_response(self, sent: Sent, response: Any, now: int) -> None:
        match sent.kind:
            case RequestKind.HEARTBEAT:
                self._heartbeats.response(sent.generation, response.error_code, now)
            case RequestKind.COMMIT:
                self._commits.response(sent, response, now)
            case RequestKind.FIND_COORDINATOR:
                self._discovery.response(response, now)
            case RequestKind.JOIN:
                if self._join.response(response, now):
                    self._heartbeats.restart(now)
                    self._sync.joined(response)
            case RequestKind.SYNC:
                self._sync.response(response, now)
            case RequestKind.RESYNC:
                self._resync.response(sent.generation, response, now)
            case RequestKind.LEAVE:
                self._core.effects.append(LeftGroup())

    def request_failed(self, request_id: int, now: int) -> None:
        """The connection was lost, or the request has timed out."""
        sent = self._core.in_flight.pop(request_id)
        if sent is None:
            return
        match sent.kind:
            case RequestKind.FIND_COORDINATOR:
                self._discovery.backoff.failed(now)
            case RequestKind.LEAVE:
                self._core.effects.append(LeftGroup())  # sent only once: session expiry has the same effect
            case RequestKind.SYNC:
                self._sync.failed(now)
            case RequestKind.RESYNC:
                self._resync.failed(sent.generation, now)
            case RequestKind.COMMIT:
                self._commits.failed(now)
            case RequestKind.HEARTBEAT:
                self._heartbeats.failed(now)
            case RequestKind.JOIN:
                self._discovery.mark_unknown(now)
        self._send_due_requests(now)

    def _send_due_requests(self, now: int) -> None:
        if self._core.coordinator is None:
            self._discovery.send_due(now)
            return
        self._core.send_leave_request()
        self._join.send_due(now)
        self._sync.send_due(now)
        self._heartbeats.send_due(now)
        self._commits.send_due(now)
