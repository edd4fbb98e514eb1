"""The phase after a join: the leader's assignment, or the report that its assignor failed, and the SyncGroup
request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.membership import error_actions, requests
from holdfast.membership.coordinator_discovery import CoordinatorDiscovery
from holdfast.membership.core import NEVER, MembershipCore
from holdfast.membership.effects import AssignmentFailed, Channel, JoinComplete, LeaderElected, LeftGroup
from holdfast.membership.error_actions import ErrorAction
from holdfast.membership.failures import Failure, FailureKind
from holdfast.membership.in_flight import RequestKind
from holdfast.membership.join_phase import JoinPhase
from holdfast.membership.phases import Phase
from holdfast.membership.requests import SyncExtensions
from holdfast.membership.session import Session
from holdfast.wire.apis.sync_group import AssignmentFailure
from holdfast.wire.error_codes import ErrorCode

MAX_ASSIGNOR_FAILURES: Final = 3
"""Failures in a row without a stable generation in between. By then other members have led the group, too."""
MAX_FAILURE_MESSAGE_LENGTH: Final = 1_000


class SyncPhase:
    def __init__(
        self, core: MembershipCore, discovery: CoordinatorDiscovery, session: Session, join: JoinPhase
    ) -> None:
        self._core = core
        self._discovery = discovery
        self._session = session
        self._join = join
        self._assignments: Mapping[str, bytes] = {}
        self._failure: AssignmentFailure | None = None
        """Reported instead of assignments."""
        self._fatal_error: str | None = None
        """Why this membership ends as soon as the coordinator has the report."""

    # -- the leader's part ---------------------------------------------------------------------------------------------

    def joined(self, response: Any) -> None:
        """This member is in a new generation."""
        core = self._core
        self._assignments, self._failure, self._fatal_error = {}, None, None
        if core.is_leader:
            core.transition_to(Phase.LEADING)
            protocol, skip = core.generation.protocol or "", response.skip_assignment
            core.effects.append(LeaderElected(response.generation_id, protocol, response.members, skip))
        else:
            core.transition_to(Phase.SYNCING)

    def _leads(self, generation_id: int) -> bool:
        return self._core.phase is Phase.LEADING and generation_id == self._core.generation.generation_id

    def assignment_ready(self, generation_id: int, assignments: Mapping[str, bytes]) -> bool:
        if not self._leads(generation_id):
            return False
        self._assignments = assignments
        self._core.transition_to(Phase.SYNCING)
        return True

    def assignment_failed(self, generation_id: int, message: str) -> None:
        if self._leads(generation_id):
            self._fail_as_leader(message, leave=self._core.instance_id is None)
        else:
            self._core.effects.append(LeftGroup())

    def report_failure(self, generation_id: int, fault: int, message: str, now: int) -> bool:
        if not self._leads(generation_id):
            return False
        backoff = self._join.assignor_backoff
        backoff.failed(now)
        is_last = backoff.failures >= MAX_ASSIGNOR_FAILURES
        if not self._discovery.has_extensions or (is_last and self._core.coordinator is None):
            self.assignment_failed(generation_id, message)
            return False
        self._failure = AssignmentFailure(fault, message[:MAX_FAILURE_MESSAGE_LENGTH])
        self._fatal_error = message if is_last else None
        self._core.transition_to(Phase.SYNCING)
        return True

    def _fail_as_leader(self, message: str, *, leave: bool) -> None:
        core = self._core
        if leave:
            core.prepare_leave_request("the assignor failed")
        core.fail(Failure(FailureKind.ASSIGNOR, message))
        if RequestKind.LEAVE not in core.in_flight:
            core.effects.append(LeftGroup())

    # -- the request ---------------------------------------------------------------------------------------------------

    @property
    def _may_send(self) -> bool:
        return self._core.phase is Phase.SYNCING and RequestKind.SYNC not in self._core.in_flight

    def next_due(self) -> float:
        return self._join.backoff.ready_at if self._may_send else NEVER

    def send_due(self, now: int) -> None:
        if not self._may_send or now < self._join.backoff.ready_at:
            return
        core = self._core
        extensions = SyncExtensions(failure=self._failure) if self._discovery.has_extensions else None
        sync = requests.sync_group(core.settings, core.generation, core.instance_id, self._assignments, extensions)
        core.send(RequestKind.SYNC, Channel.JOIN, sync, timeout_ms=core.settings.join_timeout_ms)

    def response(self, response: Any, now: int) -> None:
        core = self._core
        if core.phase is not Phase.SYNCING:
            return
        if self._fatal_error is not None:
            # A static member leaves, too: it has no assignment to return to, and the other members would wait for its
            # session to expire.
            self._fail_as_leader(self._fatal_error, leave=True)
            return
        code = response.error_code
        if code == ErrorCode.NONE and self._failure is None:
            self._succeeded(response, now)
            return
        if response.failure is not None and not core.is_leader:
            failure = response.failure
            core.effects.append(AssignmentFailed(core.generation.generation_id, failure.code, failure.message))
        # After a reported failure there is no assignment, whatever the code.
        self._handle_error(ErrorCode.REBALANCE_IN_PROGRESS if code == ErrorCode.NONE else code, now)

    def _handle_error(self, code: int, now: int) -> None:
        match error_actions.SYNC.get(code, ErrorAction.FATAL):
            case ErrorAction.REJOIN:
                self._core.transition_to(Phase.JOINING)
            case ErrorAction.RETRY:
                self._join.backoff.failed(now)
            case ErrorAction.REDISCOVER:  # in Apache Kafka a new coordinator has no generation without an assignment
                self._discovery.mark_unknown(now)
                self._core.transition_to(Phase.JOINING)
            case action:
                if not self._join.handle_error(action, now):
                    self._core.fail_refused("the coordinator gives this member no assignment", code)

    def failed(self, now: int) -> None:
        """No response. The SyncGroup is sent again once the coordinator is found, and no member rejoins. A coordinator
        that no longer has the generation rejects it."""
        self._discovery.mark_unknown(now)
        if self._core.phase is not Phase.SYNCING or self._failure is None:
            return
        if self._fatal_error is not None:
            self._fail_as_leader(self._fatal_error, leave=False)
        else:
            self._core.transition_to(Phase.JOINING)  # there is no assignment to wait for

    def _succeeded(self, response: Any, now: int) -> None:
        core = self._core
        expected = (core.settings.protocol_type, core.generation.protocol)
        found = (response.protocol_type or expected[0], response.protocol_name or expected[1])
        if found != expected:
            core.fail_refused("the group agreed on another protocol", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        self._join.reason = ""
        self._join.backoff.succeeded()
        self._join.assignor_backoff.succeeded()
        self._session.coordinator_responded(now)
        core.transition_to(Phase.STABLE)
        core.effects.append(join_complete(core, response))
        if self._join.rejoin_needed:
            self._join.prepare(now, lost=False)


def join_complete(core: MembershipCore, response: Any, *, is_resync: bool = False) -> JoinComplete:
    generation = core.generation
    return JoinComplete(
        generation.generation_id,
        generation.member_id,
        generation.protocol or "",
        core.is_leader,
        response.assignment,
        epoch=response.assignment_epoch if response.assignment_epoch > requests.NO_EPOCH else None,
        is_resync=is_resync,
    )
