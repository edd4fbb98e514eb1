"""A leader's resync: it extends the assignments of a stable generation, and the group does not rebalance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.membership import error_actions, requests
from holdfast.membership.coordinator_discovery import CoordinatorDiscovery
from holdfast.membership.core import MembershipCore
from holdfast.membership.effects import Channel
from holdfast.membership.error_actions import ErrorAction
from holdfast.membership.generation import Generation
from holdfast.membership.in_flight import RequestKind
from holdfast.membership.join_phase import JoinPhase
from holdfast.membership.phases import Phase
from holdfast.membership.requests import SyncExtensions
from holdfast.membership.sync_phase import join_complete
from holdfast.wire.error_codes import ErrorCode


class LeaderResync:
    def __init__(self, core: MembershipCore, discovery: CoordinatorDiscovery, join: JoinPhase) -> None:
        self._core = core
        self._discovery = discovery
        self._join = join
        self._reason = ""

    def send(self, generation_id: int, epoch: int, assignments: Mapping[str, bytes], reason: str, now: int) -> None:
        core = self._core
        if core.phase is not Phase.STABLE or generation_id != core.generation.generation_id:
            return  # a rebalance is already in progress
        possible = core.is_leader and self._discovery.has_extensions and core.coordinator is not None
        if not possible or RequestKind.RESYNC in core.in_flight:
            self._join.rejoin(reason, now)
            return
        self._reason = reason
        extensions = SyncExtensions(resync_from_epoch=epoch)
        resync = requests.sync_group(core.settings, core.generation, core.instance_id, assignments, extensions)
        core.send(RequestKind.RESYNC, Channel.JOIN, resync)

    def response(self, generation: Generation, response: Any, now: int) -> None:
        if not self._is_current(generation):
            return  # this member gets its assignment with the next join
        code = response.error_code
        if code == ErrorCode.NONE:
            self._core.effects.append(join_complete(self._core, response, is_resync=True))
            return
        action = error_actions.SYNC.get(code, ErrorAction.REJOIN)
        # After any other error the group rebalances, which assigns all partitions.
        if not self._join.handle_error(action, now) or action is ErrorAction.REDISCOVER:
            self._join.rejoin(self._reason, now)

    def failed(self, generation: Generation, now: int) -> None:
        self._discovery.mark_unknown(now)
        if self._is_current(generation):
            self._join.rejoin(self._reason, now)

    def _is_current(self, generation: Generation) -> bool:
        return self._core.phase is Phase.STABLE and generation == self._core.generation
