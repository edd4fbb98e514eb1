"""The session timeout of this member, and the poll timeout of its application."""

from __future__ import annotations

from holdfast.membership.coordinator_discovery import CoordinatorDiscovery
from holdfast.membership.core import NEVER, MembershipCore
from holdfast.membership.phases import HEARTBEATS, MUST_POLL


class Session:
    def __init__(self, core: MembershipCore, discovery: CoordinatorDiscovery) -> None:
        self._core = core
        self._discovery = discovery
        self._deadline = NEVER
        self._poll_deadline = NEVER

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def restart(self, now: int) -> None:
        self._deadline = now + self._core.settings.session_timeout_ms

    def coordinator_responded(self, now: int) -> None:
        self._discovery.backoff.succeeded()
        self.restart(now)

    @property
    def _is_kept_by_heartbeats(self) -> bool:
        """A pending join keeps the membership without heartbeats."""
        core = self._core
        return core.phase in HEARTBEATS and core.generation.is_valid and core.coordinator is not None

    def has_expired(self, now: int) -> bool:
        return now >= self._deadline and self._is_kept_by_heartbeats

    # -- the application -----------------------------------------------------------------------------------------------

    def start_poll_timer(self, now: int) -> None:
        """Has no effect while it runs."""
        if self._poll_deadline == NEVER:
            self.polled(now)

    def polled(self, now: int) -> None:
        self._poll_deadline = now + self._core.settings.max_poll_interval_ms

    def stop_poll_timer(self) -> None:
        self._poll_deadline = NEVER

    def poll_has_expired(self, now: int) -> bool:
        return now >= self._poll_deadline and self._core.phase in MUST_POLL

    def next_due(self) -> int:
        return min(self._poll_deadline, self._deadline if self._is_kept_by_heartbeats else NEVER)
