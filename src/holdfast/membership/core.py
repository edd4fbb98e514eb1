"""The common state of a membership: its phase, its generation, requests in flight and effects to perform."""

from __future__ import annotations

from typing import Final

from holdfast.membership import failures, requests
from holdfast.membership.backoff import Backoff
from holdfast.membership.effects import Channel, CloseChannels, CommitCompleted, Effect, Failed, SendRequest
from holdfast.membership.failures import Failure, FailureKind
from holdfast.membership.generation import NO_GENERATION, Generation
from holdfast.membership.in_flight import InFlight, RequestKind
from holdfast.membership.pending_commits import PendingCommits
from holdfast.membership.phases import TRANSITIONS, Phase
from holdfast.membership.requests import BuildRequest, CoordinatorNode
from holdfast.membership.settings import MembershipSettings

NEVER: Final = 1 << 62
_JITTER: Final = 0.2
_IDLE: Final = frozenset({Phase.UNJOINED, Phase.POLL_EXPIRED, Phase.CLOSED})


class MembershipCore:
    def __init__(self, settings: MembershipSettings) -> None:
        self.settings = settings
        self.instance_id = settings.group_instance_id
        self.phase = Phase.UNJOINED
        self.generation = NO_GENERATION
        self.is_leader = False
        self.coordinator: CoordinatorNode | None = None
        """The coordinator, once it is connected."""
        self.in_flight = InFlight()
        self.commits = PendingCommits()
        self.effects: list[Effect] = []
        self._leave_request: BuildRequest | None = None

    def backoff(self) -> Backoff:
        settings = self.settings
        return Backoff(
            settings.retry_backoff_ms, settings.retry_backoff_max_ms, lambda: 1 + _JITTER * settings.jitter()
        )

    def transition_to(self, phase: Phase) -> None:
        assert phase in TRANSITIONS[self.phase], f"a member that is {self.phase.value} cannot be {phase.value} next"
        self.phase = phase

    def set_generation(self, generation: Generation, *, is_leader: bool = False) -> None:
        self.generation = generation
        self.is_leader = is_leader

    def is_stale(self, generation: Generation) -> bool:
        """Whether an error response to a request of this generation can be ignored, because this member has a newer
        generation or has requested one. The response to a join arrives on a separate connection, perhaps later than the
        error that it causes. If the coordinator no longer has this member, the join fails with the same error."""
        return generation != NO_GENERATION and (generation != self.generation or RequestKind.JOIN in self.in_flight)

    @property
    def needs_coordinator(self) -> bool:
        return self.phase not in _IDLE or self._leave_request is not None or bool(self.commits.queued)

    # -- requests ------------------------------------------------------------------------------------------------------

    def send(
        self,
        kind: RequestKind,
        channel: Channel,
        build: BuildRequest,
        *,
        timeout_ms: int | None = None,
        max_version: int | None = None,
        generation: Generation | None = None,
    ) -> None:
        sent = self.in_flight.add(kind, self.generation if generation is None else generation, self.phase)
        timeout_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        max_version = kind.api.versions[1] if max_version is None else max_version
        self.effects.append(SendRequest(sent.request_id, channel, kind.api, build, timeout_ms, max_version))

    def cancel_join(self) -> None:
        """Close the connection on which a JoinGroup or SyncGroup is in flight, because its response is no longer
        needed."""
        if RequestKind.JOIN in self.in_flight or RequestKind.SYNC in self.in_flight:
            self.in_flight.discard(RequestKind.JOIN)
            self.in_flight.discard(RequestKind.SYNC)
            self.effects.append(CloseChannels((Channel.JOIN,)))

    def prepare_leave_request(self, reason: str) -> None:
        """To be sent as soon as the coordinator is connected."""
        self._leave_request = requests.leave_group(
            self.settings.group_id, self.generation.member_id, self.instance_id, reason
        )

    @property
    def is_leaving(self) -> bool:
        return self._leave_request is not None

    def send_leave_request(self) -> None:
        build = self._leave_request
        if build is not None and self.coordinator is not None and RequestKind.LEAVE not in self.in_flight:
            self._leave_request = None
            self.send(RequestKind.LEAVE, Channel.COORDINATOR, build)

    # -- the end -------------------------------------------------------------------------------------------------------

    def fail_all_commits(self, message: str) -> None:
        for commit in self.commits.take_all():
            failure = Failure(FailureKind.NO_LONGER_MEMBER, message)
            self.effects.append(CommitCompleted(commit.commit_id, failure, {}))

    def fenced_failure(self) -> Failure:
        return failures.fenced(self.settings.group_id, self.instance_id, self.generation.member_id)

    def fail_fenced(self) -> None:
        self.fail(self.fenced_failure())

    def fail_refused(self, what: str, code: int) -> None:
        self.fail(failures.refusal(self.settings.group_id, what, code))

    def fail(self, failure: Failure) -> None:
        self.send_leave_request()
        self.fail_all_commits(f"the offsets were not stored: {failure.message}")
        self.set_generation(NO_GENERATION)
        self.transition_to(Phase.CLOSED)
        self.effects.append(Failed(failure))
