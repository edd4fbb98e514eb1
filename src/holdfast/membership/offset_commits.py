"""Offset commits: the requests, their retries, and the effects of their errors on the membership."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.membership import error_actions, failures, requests
from holdfast.membership.coordinator_discovery import CoordinatorDiscovery
from holdfast.membership.core import NEVER, MembershipCore
from holdfast.membership.effects import Channel, CommitCompleted
from holdfast.membership.error_actions import IGNORED_IF_STALE, ErrorAction, describe_error
from holdfast.membership.failures import Failure, FailureKind, known_code
from holdfast.membership.generation import NO_GENERATION, Generation
from holdfast.membership.in_flight import RequestKind, Sent
from holdfast.membership.join_phase import JoinPhase
from holdfast.membership.pending_commits import RETRIED_ACTIONS
from holdfast.membership.phases import Phase
from holdfast.membership.requests import OffsetAndMetadata
from holdfast.types import TopicPartition
from holdfast.wire.error_codes import ErrorCode

_RESETS = frozenset({ErrorAction.RESET_MEMBER_ID, ErrorAction.RESET_GENERATION})


class OffsetCommits:
    def __init__(self, core: MembershipCore, discovery: CoordinatorDiscovery, join: JoinPhase) -> None:
        self._core = core
        self._pending = core.commits
        self._discovery = discovery
        self._join = join
        self._backoff = core.backoff()

    def add(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], now: int, timeout_ms: int) -> int:
        core = self._core
        if core.phase is not Phase.UNJOINED and not core.generation.is_valid:
            commit_id = self._pending.next_id()
            failure = failures.commit_while_unjoined(core.settings.group_id)
            core.effects.append(CommitCompleted(commit_id, failure, {}))
            return commit_id
        # Without a subscription the offsets belong to no member: neither generation nor ids are sent.
        generation = core.generation if core.phase is not Phase.UNJOINED else NO_GENERATION
        return self._pending.add(generation, offsets, now + timeout_ms).commit_id

    def expire(self, now: int) -> None:
        for commit in self._pending.take_expired(now):
            failure = failures.commit_timed_out(self._core.settings.group_id, commit.last_error)
            self._core.effects.append(CommitCompleted(commit.commit_id, failure, {}))

    # -- the request ---------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int:
        return min((commit.deadline for commit in self._pending.queued), default=NEVER)

    def next_due(self) -> float:
        return self._backoff.ready_at if self._pending.queued and not self._pending.sent else NEVER

    def send_due(self, now: int) -> None:
        if not self._pending.queued or self._pending.sent or now < self._backoff.ready_at:
            return
        core = self._core
        generation, offsets = self._pending.next_batch()
        if generation not in (core.generation, NO_GENERATION):
            self._complete(failures.commit_before_rebalance())
            self.send_due(now)
            return
        instance_id = None if generation == NO_GENERATION else core.instance_id
        commit = requests.offset_commit(core.settings.group_id, generation, instance_id, offsets)
        max_version = requests.MAX_VERSION_WITH_TOPIC_NAMES
        core.send(RequestKind.COMMIT, Channel.COORDINATOR, commit, max_version=max_version, generation=generation)

    def failed(self, now: int) -> None:
        self._pending.requeue_sent()
        self._backoff.failed(now)
        self._discovery.mark_unknown(now)

    def response(self, sent: Sent, response: Any, now: int) -> None:
        generation = sent.generation
        codes = {
            (topic.name, entry.partition_index): entry.error_code
            for topic in response.topics
            for entry in topic.partitions
            if entry.error_code != ErrorCode.NONE
        }
        actions = {error_actions.COMMIT.get(code, ErrorAction.FAIL): code for code in codes.values()}
        if not actions.keys().isdisjoint(IGNORED_IF_STALE) and self._core.is_stale(generation):
            rebalancing = generation == self._core.generation
            self._complete(failures.commit_during_rebalance() if rebalancing else failures.commit_before_rebalance())
        elif ErrorAction.FENCED in actions:
            self._complete(self._core.fenced_failure())
            self._core.fail_fenced()
        elif not actions.keys().isdisjoint(_RESETS):
            self._rejected(generation, actions, now)
        elif ErrorAction.REJOIN in actions:
            self._rebalancing(sent, now)
        elif not actions.keys().isdisjoint(RETRIED_ACTIONS) and not self._pending.only_deleted_topics_fail(
            codes.values(), now
        ):
            self._retry(actions, now)
        else:
            self._backoff.succeeded()
            self._complete(None, codes)

    # -- responses -----------------------------------------------------------------------------------------------------

    def _rejected(self, generation: Generation, actions: Mapping[ErrorAction, int], now: int) -> None:
        """The coordinator does not have the member of the commit."""
        forgotten = ErrorAction.RESET_MEMBER_ID in actions
        code = actions[ErrorAction.RESET_MEMBER_ID if forgotten else ErrorAction.RESET_GENERATION]
        if generation == NO_GENERATION:
            self._complete(failures.commit_not_member(self._core.settings.group_id, code))
            return
        self._complete(failures.commit_after_expulsion(code))
        self._join.reset_generation(NO_GENERATION if forgotten else generation.member_id_only(), now)

    def _rebalancing(self, sent: Sent, now: int) -> None:
        core = self._core
        self._complete(failures.commit_during_rebalance())
        if sent.phase is Phase.STABLE and core.phase is Phase.STABLE and sent.generation == core.generation:
            # Otherwise this member already takes part in that rebalance. Rejoining because of this response would cause
            # another rebalance, in which the next commit gets the same response.
            self._join.rejoin("group is already rebalancing", now)

    def _retry(self, actions: Mapping[ErrorAction, int], now: int) -> None:
        code = actions.get(ErrorAction.RETRY, actions.get(ErrorAction.REDISCOVER, 0))
        for commit in self._pending.sent:
            commit.last_error = code
        self._pending.requeue_sent()
        self._backoff.failed(now)
        if ErrorAction.REDISCOVER in actions:
            self._discovery.mark_unknown(now)

    def _complete(self, failure: Failure | None, codes: Mapping[TopicPartition, int] | None = None) -> None:
        errors = {
            where: Failure(FailureKind.COMMIT_REFUSED, describe_error(code), known_code(code))
            for where, code in (codes or {}).items()
        }
        for commit in self._pending.take_sent():
            own = {where: error for where, error in errors.items() if where in commit.offsets}
            self._core.effects.append(CommitCompleted(commit.commit_id, failure, own))
