"""Joining a generation: the revocation before it, the JoinGroup request, and the handling of errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.membership import error_actions, requests
from holdfast.membership.coordinator_discovery import CoordinatorDiscovery
from holdfast.membership.core import NEVER, MembershipCore
from holdfast.membership.effects import Channel, JoinPrepare
from holdfast.membership.error_actions import ErrorAction
from holdfast.membership.generation import NO_GENERATION, NO_MEMBER_ID, Generation
from holdfast.membership.in_flight import RequestKind
from holdfast.membership.phases import MUST_POLL, Phase
from holdfast.membership.session import Session
from holdfast.wire.error_codes import ErrorCode


class JoinPhase:
    def __init__(self, core: MembershipCore, discovery: CoordinatorDiscovery, session: Session) -> None:
        self.backoff = core.backoff()
        """Of JoinGroup and SyncGroup."""
        self.assignor_backoff = core.backoff()
        """The backoff of a leader whose assignor failed. Another member may lead meanwhile."""
        self.reason = ""
        """Why this member rejoins, for the coordinator's log (KIP-800)."""
        self.rejoin_needed = False
        """Whether another join follows the one in flight."""
        self._core = core
        self._discovery = discovery
        self._session = session
        self._attempts = 0
        self._protocols: Sequence[tuple[str, bytes]] = ()

    # -- before the request --------------------------------------------------------------------------------------------

    def rejoin(self, reason: str, now: int) -> None:
        if not self.reason:
            self.reason = reason
        if self._core.phase is Phase.STABLE:
            self.prepare(now, lost=False)
        elif self._core.phase in MUST_POLL:
            self.rejoin_needed = self._core.phase is not Phase.PREPARING

    def prepare(self, now: int, *, lost: bool) -> None:
        """Have the application revoke partitions. If the generation is lost meanwhile, this is repeated with `lost`."""
        self._attempts += 1
        self.rejoin_needed = False
        if self._core.phase is not Phase.PREPARING:
            self._core.transition_to(Phase.PREPARING)
        self._session.start_poll_timer(now)
        self._core.effects.append(JoinPrepare(self._attempts, lost))

    def prepared(self, attempt: int, protocols: Sequence[tuple[str, bytes]]) -> bool:
        if self._core.phase is not Phase.PREPARING or attempt != self._attempts:
            return False
        self._protocols = protocols
        self._core.transition_to(Phase.JOINING)
        return True

    def reset_generation(self, remains: Generation, now: int) -> None:
        """Start over. Another member may already own this member's partitions, unless nothing was assigned yet."""
        core = self._core
        was_valid = core.generation.is_valid
        core.set_generation(remains)
        if was_valid or core.phase is not Phase.JOINING:
            core.cancel_join()
            self.reason = self.reason or "the generation was lost"
            self.prepare(now, lost=True)

    # -- the request ---------------------------------------------------------------------------------------------------

    @property
    def _may_send(self) -> bool:
        return self._core.phase is Phase.JOINING and RequestKind.JOIN not in self._core.in_flight

    def next_due(self) -> float:
        return max(self.backoff.ready_at, self.assignor_backoff.ready_at) if self._may_send else NEVER

    def send_due(self, now: int) -> None:
        if not self._may_send or now < self.next_due():
            return
        core = self._core
        join = requests.join_group(core.settings, core.generation, core.instance_id, self._protocols, self.reason)
        core.send(RequestKind.JOIN, Channel.JOIN, join, timeout_ms=core.settings.join_timeout_ms)

    def response(self, response: Any, now: int) -> bool:
        """Returns whether this member is in a new generation."""
        if self._core.phase is not Phase.JOINING:
            return False
        code = response.error_code
        if code == ErrorCode.NONE:
            return self._succeeded(response, now)
        match error_actions.JOIN.get(code, ErrorAction.FATAL):
            case ErrorAction.USE_ASSIGNED_ID:
                if self._core.generation.member_id != NO_MEMBER_ID or response.member_id == NO_MEMBER_ID:
                    self.backoff.failed(now)  # a protocol violation, which could repeat endlessly without a pause
                self.reset_generation(Generation(member_id=response.member_id), now)
            case ErrorAction.RETRY:
                self.backoff.failed(now)
            case action:
                if not self.handle_error(action, now):
                    self._core.fail_refused("this member may not join", code)
        return False

    def _succeeded(self, response: Any, now: int) -> bool:
        core = self._core
        if response.protocol_type is not None and response.protocol_type != core.settings.protocol_type:
            core.fail_refused("the group is of another protocol type", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return False
        protocol = response.protocol_name or ""
        if protocol not in [name for name, _ in self._protocols]:
            core.fail_refused(f"the group agreed on {protocol!r}", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return False
        self.backoff.succeeded()
        core.set_generation(
            Generation(response.generation_id, response.member_id, protocol),
            is_leader=response.leader == response.member_id,
        )
        self._session.coordinator_responded(now)
        return True

    # -- errors --------------------------------------------------------------------------------------------------------

    def handle_error(self, action: ErrorAction, now: int) -> bool:
        """The actions that are common to all requests of the current generation. Returns False for other actions."""
        match action:
            case ErrorAction.REDISCOVER:
                self._discovery.mark_unknown(now)
            case ErrorAction.RESET_MEMBER_ID:
                self.reset_generation(NO_GENERATION, now)
            case ErrorAction.RESET_GENERATION:
                self.reset_generation(self._core.generation.member_id_only(), now)
            case ErrorAction.FENCED:
                self._core.fail_fenced()
            case _:
                return False
        return True
