"""Commits on their way: one request at a time, in order, so that an older offset never overtakes a newer one.

What is committed while a request is out is put together into the next one, the newest offset of a partition winning.
A commit belongs to the seat that was held when it was made: with another generation in hand, the partitions may be
somebody else's, and it fails instead of being sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from holdfast.membership import answers
from holdfast.membership.answers import Action
from holdfast.membership.requests import Offset
from holdfast.membership.seat import Seat
from holdfast.wire.error_codes import ErrorCode

TopicPartition = tuple[str, int]

RETRIED: Final = frozenset({Action.RETRY, Action.REDISCOVER})
UNKNOWN_TOPIC_FOR_MS: Final = 5_000
"""A topic may be so new that the coordinator's broker has not heard of it; later than that it was deleted."""


@dataclass(slots=True)
class Commit:
    number: int
    seat: Seat
    offsets: Mapping[TopicPartition, Offset]
    deadline: int
    last_error: int = 0
    """What the coordinator said when it was last asked to wait."""
    unknown_since: int | None = None
    """When it was first said that one of its topics is not known."""


@dataclass(slots=True)
class Commits:
    waiting: list[Commit] = field(default_factory=list)
    sent: list[Commit] = field(default_factory=list)
    _numbers: int = 0

    def add(self, seat: Seat, offsets: Mapping[TopicPartition, Offset], deadline: int) -> Commit:
        self._numbers += 1
        commit = Commit(self._numbers, seat, dict(offsets), deadline)
        self.waiting.append(commit)
        return commit

    def number(self) -> int:
        """For a commit that fails before it is made."""
        self._numbers += 1
        return self._numbers

    def next_batch(self) -> tuple[Seat, dict[TopicPartition, Offset]]:
        """The offsets of all commits from the front that were made with one seat. They count as sent."""
        assert self.waiting and not self.sent
        seat = self.waiting[0].seat
        self.sent = list(takewhile(lambda commit: commit.seat == seat, self.waiting))
        self.waiting = self.waiting[len(self.sent) :]
        offsets: dict[TopicPartition, Offset] = {}
        for commit in self.sent:
            offsets.update(commit.offsets)
        return seat, offsets

    def topics_are_gone(self, codes: Collection[int], now: int) -> bool:
        """Whether, by these answers to what was sent, only topics are left to wait for, and they have been waited
        for."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if unknown not in codes:
            return False
        since = self._unknown_since(now)
        passing = {code for code in codes if answers.COMMIT.get(code) in RETRIED}
        return passing == {unknown} and now - since >= UNKNOWN_TOPIC_FOR_MS

    def _unknown_since(self, now: int) -> int:
        """The coordinator does not know a topic of what was sent: since when the first of it has heard that."""
        for commit in self.sent:
            commit.unknown_since = now if commit.unknown_since is None else commit.unknown_since
        return min((commit.unknown_since or now for commit in self.sent), default=now)

    def take_sent(self) -> list[Commit]:
        sent, self.sent = self.sent, []
        return sent

    def put_back(self) -> None:
        self.waiting[:0] = self.take_sent()

    def take_expired(self, now: int) -> list[Commit]:
        expired = [commit for commit in self.waiting if commit.deadline <= now]
        self.waiting = [commit for commit in self.waiting if commit.deadline > now]
        return expired

    def take_all(self) -> list[Commit]:
        everything = self.sent + self.waiting
        self.sent, self.waiting = [], []
        return everything
