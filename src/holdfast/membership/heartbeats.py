"""Heartbeats keep the session alive and report a rebalance."""

from __future__ import annotations

from holdfast.membership import error_actions
from holdfast.membership.coordinator_discovery import CoordinatorDiscovery
from holdfast.membership.core import NEVER, MembershipCore
from holdfast.membership.effects import Channel
from holdfast.membership.error_actions import IGNORED_IF_STALE, ErrorAction
from holdfast.membership.generation import Generation
from holdfast.membership.in_flight import RequestKind
from holdfast.membership.join_phase import JoinPhase
from holdfast.membership.phases import HEARTBEATS, Phase
from holdfast.membership.requests import heartbeat
from holdfast.membership.session import Session


class Heartbeats:
    def __init__(
        self, core: MembershipCore, discovery: CoordinatorDiscovery, session: Session, join: JoinPhase
    ) -> None:
        self._core = core
        self._discovery = discovery
        self._session = session
        self._join = join
        self._due = NEVER

    @property
    def _may_send(self) -> bool:
        core = self._core
        return core.phase in HEARTBEATS and core.generation.is_valid and RequestKind.HEARTBEAT not in core.in_flight

    def next_due(self) -> int:
        return self._due if self._may_send else NEVER

    def restart(self, now: int) -> None:
        """The next one is due an interval from now."""
        self._due = now + self._core.settings.heartbeat_interval_ms

    def send_due(self, now: int) -> None:
        if now >= self._due and self._may_send:
            self.restart(now)
            core = self._core
            request = heartbeat(core.settings.group_id, core.generation, core.instance_id)
            core.send(RequestKind.HEARTBEAT, Channel.COORDINATOR, request)

    def response(self, generation: Generation, code: int, now: int) -> None:
        action = error_actions.HEARTBEAT.get(code, ErrorAction.FATAL) if code else ErrorAction.IGNORE
        if action in IGNORED_IF_STALE and self._core.is_stale(generation):
            return
        match action:
            case ErrorAction.IGNORE:
                self._session.coordinator_responded(now)
            case ErrorAction.REJOIN:
                self._session.coordinator_responded(now)
                # Otherwise the response concerns a rebalance that is over.
                if self._core.phase is Phase.STABLE and generation == self._core.generation:
                    self._join.rejoin("group is already rebalancing", now)
            case _:
                if not self._join.handle_error(action, now):
                    self._core.fail_refused("the coordinator no longer has this member", code)

    def failed(self, now: int) -> None:
        self._due = now  # the next coordinator gets one at once
        self._discovery.mark_unknown(now)
