"""Commits that are not complete. Only one request is in flight, so that an older offset never overwrites a newer one.

Commits that are made while a request is in flight are combined in the next one, with the newest offset of each
partition. A commit belongs to the generation in which it was made. In another generation other members may own the
partitions, so it fails instead of being sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from holdfast.membership import error_actions
from holdfast.membership.error_actions import ErrorAction
from holdfast.membership.generation import Generation
from holdfast.membership.requests import OffsetAndMetadata
from holdfast.types import TopicPartition
from holdfast.wire.error_codes import ErrorCode

RETRIED_ACTIONS: Final = frozenset({ErrorAction.RETRY, ErrorAction.REDISCOVER})
UNKNOWN_TOPIC_GRACE_MS: Final = 5_000
"""How long a topic may be unknown to the coordinator's broker because it is new. After that it counts as deleted."""


@dataclass(slots=True)
class PendingCommit:
    commit_id: int
    generation: Generation
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    deadline: int
    last_error: int = 0
    """The retriable error of the last response."""
    unknown_since: int | None = None
    """When the coordinator first rejected one of its topics as unknown."""


@dataclass(slots=True)
class PendingCommits:
    queued: list[PendingCommit] = field(default_factory=list)
    sent: list[PendingCommit] = field(default_factory=list)
    _last_id: int = 0

    def add(
        self, generation: Generation, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: int
    ) -> PendingCommit:
        self._last_id += 1
        commit = PendingCommit(self._last_id, generation, dict(offsets), deadline)
        self.queued.append(commit)
        return commit

    def next_id(self) -> int:
        """For a commit that fails before it is queued."""
        self._last_id += 1
        return self._last_id

    def next_batch(self) -> tuple[Generation, dict[TopicPartition, OffsetAndMetadata]]:
        """The offsets of the oldest commits of one generation. They count as sent."""
        assert self.queued and not self.sent
        generation = self.queued[0].generation
        self.sent = list(takewhile(lambda commit: commit.generation == generation, self.queued))
        self.queued = self.queued[len(self.sent) :]
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for commit in self.sent:
            offsets.update(commit.offsets)
        return generation, offsets

    def only_deleted_topics_fail(self, codes: Collection[int], now: int) -> bool:
        """Whether all retriable errors of the response are about unknown topics, for longer than the grace period."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if unknown not in codes:
            return False
        since = self._unknown_topic_since(now)
        retriable = {code for code in codes if error_actions.COMMIT.get(code) in RETRIED_ACTIONS}
        return retriable == {unknown} and now - since >= UNKNOWN_TOPIC_GRACE_MS

    def _unknown_topic_since(self, now: int) -> int:
        """Since when a topic of the oldest commit in flight is unknown to the coordinator."""
        for commit in self.sent:
            commit.unknown_since = now if commit.unknown_since is None else commit.unknown_since
        return min((commit.unknown_since or now for commit in self.sent), default=now)

    def take_sent(self) -> list[PendingCommit]:
        sent, self.sent = self.sent, []
        return sent

    def requeue_sent(self) -> None:
        self.queued[:0] = self.take_sent()

    def take_expired(self, now: int) -> list[PendingCommit]:
        expired = [commit for commit in self.queued if commit.deadline <= now]
        self.queued = [commit for commit in self.queued if commit.deadline > now]
        return expired

    def take_all(self) -> list[PendingCommit]:
        everything = self.sent + self.queued
        self.sent, self.queued = [], []
        return everything
