"""What every command works with: the configuration, the timers, and the effects it collects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.coordinator.batches import Batch, Slot
from holdfast.coordinator.effects import Append, Effects, Record
from holdfast.coordinator.group import Group
from holdfast.coordinator.ledger import Event, EventKind
from holdfast.coordinator.members import Member
from holdfast.coordinator.timers import Timers
from holdfast.coordinator.topic_sizes import SizeOf, TopicSizes
from holdfast.wire.error_codes import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Kafka's: how long the first join of a member may stay parked. It protects from clients that disconnect and come
back as somebody else, again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Kafka's broker configs for groups."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    max_size: int = 2**31 - 1
    offset_metadata_max_chars: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000


class Context:
    def __init__(self, config: GroupConfig, size_of: SizeOf) -> None:
        self.config = config
        self.topics = TopicSizes(size_of)
        self.timers = Timers()
        self.effects = Effects()
        self.answered: list[Batch] = []
        """Batches of joins of which every entry has its answer, if it is not recalled before the command ends."""
        self.on_silence: Callable[[Group, Member, int], None] = lambda _group, _member, _now_ms: None
        """What happens to a member whose session has ended; `departures` puts itself here."""

    def reply(self, ticket: object, response: Any) -> None:
        if isinstance(ticket, Slot):
            ticket.fill(response)
            if not ticket.batch.unanswered:
                self.answered.append(ticket.batch)
            return
        self.effects.replies.append((ticket, response))

    def store(
        self,
        group: Group,
        records: list[Record],
        then: Callable[[int], None],
        otherwise: Callable[[ErrorCode, int], None],
    ) -> None:
        """Asks for the records to be stored; the group's further commands wait until they are, or are not."""
        assert not group.busy
        group.busy = True
        self.effects.appends.append(Append(group.id, records, then, otherwise))

    def tell(self, kind: EventKind, group: Group, now_ms: int, *, member: Member | None = None, **details: Any) -> None:
        if member is not None:
            details = {
                "member_id": member.id,
                "instance_id": member.instance_id,
                "client_id": member.client.client_id,
                "client_host": member.client.host,
                **details,
            }
        event = Event(
            kind=kind, group_id=group.id, at_ms=now_ms, generation=group.generation, epoch=group.epoch, **details
        )
        self.effects.events.append(event)

    @staticmethod
    def when_free(group: Group, command: Callable[[int], None], now_ms: int) -> None:
        """Runs a command of the group now, or after the append that is under way."""
        if group.busy:
            group.waiting.append(command)
        else:
            command(now_ms)
