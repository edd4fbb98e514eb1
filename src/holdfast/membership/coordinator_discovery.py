"""Finding the coordinator of the group, and finding it again after it has moved."""

from __future__ import annotations

from typing import Any, Final

from holdfast.membership import failures, requests
from holdfast.membership.core import NEVER, MembershipCore
from holdfast.membership.effects import Channel, CloseChannels, ConnectCoordinator
from holdfast.membership.in_flight import RequestKind
from holdfast.membership.requests import CoordinatorNode
from holdfast.wire.error_codes import ErrorCode

FIRST_JOIN_WITH_INSTANCE_ID: Final = 5
_RETRIED: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class CoordinatorDiscovery:
    def __init__(self, core: MembershipCore) -> None:
        self.has_extensions = False
        """Whether the coordinator that was last connected supports Holdfast's extensions of the protocol."""
        self.backoff = core.backoff()
        self._core = core
        self._connecting_to: CoordinatorNode | None = None

    @property
    def _may_search(self) -> bool:
        core = self._core
        return (
            core.coordinator is None
            and core.needs_coordinator
            and self._connecting_to is None
            and RequestKind.FIND_COORDINATOR not in core.in_flight
        )

    def next_due(self) -> float:
        return self.backoff.ready_at if self._may_search else NEVER

    def send_due(self, now: int) -> None:
        if self._may_search and now >= self.backoff.ready_at:
            find = requests.find_coordinator(self._core.settings.group_id)
            self._core.send(RequestKind.FIND_COORDINATOR, Channel.BOOTSTRAP, find)

    def response(self, response: Any, now: int) -> None:
        code, node = requests.parse_coordinator(response)
        if code == ErrorCode.NONE:
            self._connecting_to = node
            self._core.effects.append(ConnectCoordinator(node))
        elif code in _RETRIED:
            self.backoff.failed(now)
        else:
            self._core.fail_refused("the coordinator could not be found", code)

    def connected(self, join_versions: tuple[int, int], *, has_extensions: bool) -> bool:
        """The coordinator supports these versions of JoinGroup. Returns whether this member can use it."""
        if self._connecting_to is None:
            return False
        core = self._core
        core.coordinator, self._connecting_to = self._connecting_to, None
        self.has_extensions = has_extensions
        if core.instance_id is not None and join_versions[1] < FIRST_JOIN_WITH_INSTANCE_ID:
            if not core.settings.fall_back_to_dynamic:
                address = f"{core.coordinator.host}:{core.coordinator.port}"
                core.fail(failures.static_membership_unsupported(core.instance_id, address, join_versions[1]))
                return False
            core.instance_id = None
        return True

    def unreachable(self, now: int) -> None:
        self._connecting_to = None
        self.backoff.failed(now)

    def mark_unknown(self, now: int) -> None:
        """Look for the coordinator again. The member keeps its generation."""
        core = self._core
        if core.coordinator is not None:
            core.coordinator = None
            self.backoff.failed(now)
            core.effects.append(CloseChannels((Channel.JOIN, Channel.COORDINATOR)))
