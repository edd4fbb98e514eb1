"""The responses to a request for several members, which are all delivered together.

An entry may have its response long before the last one has. Until then no response is delivered, and one that is no
longer true can be taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.coordinator.runtime.effects import DeferredReply
from holdfast.wire.apis.join_group import JoinGroupResponse
from holdfast.wire.error_codes import ErrorCode


class BatchEntry(DeferredReply):
    """The reply handle of one entry, with its response until that is delivered."""

    __slots__ = ("batch", "reply_handle", "response")

    def __init__(self, reply_handle: object, batch: JoinBatch) -> None:
        self.reply_handle = reply_handle
        self.batch = batch
        self.response: JoinGroupResponse | None = None

    def set_response(self, response: JoinGroupResponse) -> None:
        assert self.response is None
        self.response = response
        self.batch.entry_answered(response)

    def clear_response(self) -> None:
        assert self.response is not None
        self.batch.entry_reopened(self.response)
        self.response = None


class JoinBatch:
    __slots__ = ("_answered", "entries", "group_id", "unanswered", "undelivered")

    def __init__(self, reply_handles: Sequence[object], answered: list[JoinBatch]) -> None:
        """`answered` collects the batches of which every entry has its response."""
        self.group_id: str | None = None
        """None if all entries were rejected before a group was looked for."""
        self.entries = [BatchEntry(reply_handle, self) for reply_handle in reply_handles]
        self.unanswered = len(self.entries)
        self.undelivered: Counter[str] = Counter()
        """The number of good responses for each member id. Looked up for every session that ends."""
        self._answered = answered

    def entry_answered(self, response: JoinGroupResponse) -> None:
        self.unanswered -= 1
        if response.error_code == ErrorCode.NONE:
            self.undelivered[response.member_id] += 1
        if not self.unanswered:
            self._answered.append(self)

    def entry_reopened(self, response: JoinGroupResponse) -> None:
        self.unanswered += 1
        if response.error_code == ErrorCode.NONE:
            self.undelivered[response.member_id] -= 1

    def undelivered_joins(self) -> Iterator[tuple[str, BatchEntry]]:
        """The member ids that have a good response which is not delivered."""
        for entry in self.entries:
            if entry.response is not None and entry.response.error_code == ErrorCode.NONE:
                yield entry.response.member_id, entry
