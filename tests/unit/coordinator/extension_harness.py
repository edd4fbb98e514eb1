"""The harness for runs in which much happens behind one append, and answers may be lost after it."""

from __future__ import annotations

from holdfast.coordinator.classic.member import Client, Role
from holdfast.coordinator.offsets.commit import Commit
from holdfast.wire.group_records import encode_key, encode_value, partition_for
from tests.unit.coordinator.durability_checker import _requester
from tests.unit.coordinator.harness import GROUP, CoordinatorHarness, Handle


class ExtensionHarness(CoordinatorHarness):
    def _check_reply(self, handle: Handle) -> None:
        self.open.discard(handle)
        if not self._checked or self.coordinator.is_loading(handle.group):
            return
        group = self.group_or_none(handle.group)
        everybody = [*group.members.all_members] if group is not None else []
        # Some of them may be about to have an assignment, by what the same command brought about.
        waiting = frozenset(member.id for member in everybody if member.role is not Role.ACTIVE)
        # And some that were answered may be gone again, or have another id, by what waited behind them.
        asked_by = _requester(handle.request, handle.reply)
        passed = asked_by is not None and asked_by not in {member.id for member in everybody}
        if not passed:
            self.durability.check_reply(handle.group, handle.request, handle.reply, waiting)
        self.listener(handle)

    def append_unanswered(self) -> None:
        """What is held is stored, and nobody hears of it: the broker is about to be killed."""
        for append in self.paused_appends:
            partition = self.group_log.setdefault(partition_for(append.group.id, self._partition_count), [])
            for key, value in append.records:
                partition.append((encode_key(key), None if value is None else encode_value(value)))
        self.paused_appends.clear()

    def commit_over(self, client: Client, member_id: str, generation: int, instance: str | None = None) -> Handle:
        """A member's commit over its own connection."""
        handle = self._request(f"OffsetCommit {member_id!r}", GROUP)
        offsets = {("t", 0): self.offset(7)}
        command = handle.request = Commit(GROUP, generation, member_id, instance, client, handle, offsets)
        self._perform(self.coordinator.commit_offsets(command, 9, self.now))
        return handle
