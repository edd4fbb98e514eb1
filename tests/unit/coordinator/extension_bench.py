"""The bench for lives in which much happens behind one append, and what is stored is not always heard."""

from __future__ import annotations

from holdfast.coordinator.members import Client
from holdfast.coordinator.offsets import Commit
from holdfast.wire.group_records import encode_key, encode_value, partition_for
from tests.unit.coordinator.bench import GROUP, Bench, Handle
from tests.unit.coordinator.witness import _asked_by


class ExtensionBench(Bench):
    def _hear(self, handle: Handle) -> None:
        self.open.discard(handle)
        if not self._checked or self.coordinator.is_loading(handle.group):
            return
        group = self.group_or_none(handle.group)
        everybody = [*group.roster.everybody] if group is not None else []
        # Some of them may be about to have a share, by what the same command brought about.
        waiting = frozenset(member.id for member in everybody if not member.in_generation)
        # And some that were answered may be gone again, or have another id, by what waited behind them.
        asked_by = _asked_by(handle.request, handle.reply)
        passed = asked_by is not None and asked_by not in {member.id for member in everybody}
        if not passed:
            self.witness.hear(handle.group, handle.request, handle.reply, waiting)
        self.listener(handle)

    def store_unheard(self) -> None:
        """What is held is stored, and nobody hears of it: the broker is about to be killed."""
        for append in self.held:
            partition = self.journal.setdefault(partition_for(append.group_id, self._partition_count), [])
            for key, value in append.records:
                partition.append((encode_key(key), None if value is None else encode_value(value)))
        self.held.clear()

    def commit_over(self, client: Client, member_id: str, generation: int, instance: str | None = None) -> Handle:
        """A member's commit over its own connection."""
        handle = self._ask(f"OffsetCommit {member_id!r}", GROUP)
        offsets = [(("t", 0), self.offset(7))]
        command = handle.request = Commit(GROUP, generation, member_id, instance, client, handle, offsets)
        self._perform(self.coordinator.commit_offsets(command, 9, self.now))
        return handle
