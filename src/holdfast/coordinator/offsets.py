"""Committed offsets: who may commit, what is remembered, and when it is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast.coordinator import intake, presence, sessions
from holdfast.coordinator.context import Context
from holdfast.coordinator.effects import Record
from holdfast.coordinator.group import CONSUMER, Group
from holdfast.coordinator.identity import identify
from holdfast.coordinator.joining import tell_fenced
from holdfast.coordinator.members import Client, Member
from holdfast.coordinator.states import ANSWERS, DEAD, EMPTY, STABLE, Answer, Request
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitKey, OffsetCommitValue

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Commit:
    """An OffsetCommit as far as its topics and partitions exist."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    client: Client
    ticket: object
    offsets: Sequence[tuple[TopicPartition, OffsetCommitValue]]


Outcome = dict[TopicPartition, ErrorCode]
"""The answer to a commit: there is no error but per partition."""


def commit(ctx: Context, group: Group, command: Commit, now_ms: int) -> None:
    member = group.roster.get(command.member_id)
    was_away = member is not None and member.waits and member.is_away
    _commit(ctx, group, command, now_ms)
    if was_away and member is not None and not member.is_away:
        intake.review(ctx, group, now_ms)


def _commit(ctx: Context, group: Group, command: Commit, now_ms: int) -> None:
    code = _may_commit(ctx, group, command, now_ms)
    if code is not ErrorCode.NONE:
        ctx.reply(command.ticket, dict.fromkeys((key for key, _ in command.offsets), code))
        return
    limit = ctx.config.offset_metadata_max_chars
    outcome: Outcome = {}
    records: list[Record] = []
    for key, value in command.offsets:
        if len(value.metadata) <= limit:
            outcome[key] = ErrorCode.NONE
            records.append((OffsetCommitKey(group.id, key[0], key[1]), value))
        else:
            outcome[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
    if not records:
        ctx.reply(command.ticket, outcome)
        return

    def stored(now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(command.ticket, outcome)

    def failed(code: ErrorCode, now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(command.ticket, {key: code if was is ErrorCode.NONE else was for key, was in outcome.items()})

    ctx.store(group, records, stored, failed)


def _may_commit(ctx: Context, group: Group, command: Commit, now_ms: int) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if command.generation < 0 and group.state is EMPTY:
        return ErrorCode.NONE  # nobody is a member: a tool, or a consumer that assigns its partitions itself
    if command.generation < 0 and not command.member_id and command.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = identify(group.roster, command.member_id, command.instance_id)
    if not isinstance(member, Member):
        if member is ErrorCode.FENCED_INSTANCE_ID:
            tell_fenced(ctx, group, command.member_id, command.instance_id, command.client, now_ms)
        return member
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if ANSWERS[Request.COMMIT][group.state] is not Answer.ACCEPT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    presence.heard(group, member, command.client)
    sessions.refresh(ctx, group, member, now_ms)
    return ErrorCode.NONE


# -- deleting ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetDeletion:
    """The answer to OffsetDelete: an error for all, or one for each."""

    error_code: ErrorCode
    partitions: Outcome


def delete(ctx: Context, group: Group, wanted: Sequence[TopicPartition], ticket: object, now_ms: int) -> None:  # noqa: ARG001
    """Offsets of topics that the group reads are not deleted under its hands."""
    if group.state is DEAD:
        ctx.reply(ticket, OffsetDeletion(ErrorCode.GROUP_ID_NOT_FOUND, {}))
        return
    topics: set[str] | None = set()
    if group.state is not EMPTY:
        if group.protocol_type != CONSUMER:
            ctx.reply(ticket, OffsetDeletion(ErrorCode.NON_EMPTY_GROUP, {}))
            return
        topics = group.topics()
    outcome: Outcome = {
        key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topics is None or key[0] in topics else ErrorCode.NONE
        for key in wanted
    }
    doomed = [key for key, code in outcome.items() if code is ErrorCode.NONE and key in group.stored.offsets]
    forget(ctx, group, doomed, lambda code: ctx.reply(ticket, _deletion(outcome, code)))


def _deletion(outcome: Outcome, code: ErrorCode) -> OffsetDeletion:
    if code is ErrorCode.NONE:
        return OffsetDeletion(ErrorCode.NONE, outcome)
    return OffsetDeletion(ErrorCode.NONE, {key: was or code for key, was in outcome.items()})


def forget(ctx: Context, group: Group, doomed: Iterable[TopicPartition], then: Callable[[ErrorCode], None]) -> None:
    """Stores the end of these offsets, if there are any."""
    records: list[Record] = [(OffsetCommitKey(group.id, topic, index), None) for topic, index in doomed]
    if records:
        ctx.store(group, records, lambda _now: then(ErrorCode.NONE), lambda code, _now: then(code))
    else:
        then(ErrorCode.NONE)


# -- expiry ------------------------------------------------------------------------------------------------------------


def expired(group: Group, retention_ms: int, now_ms: int) -> list[TopicPartition]:
    """The offsets whose time is over.

    With members, an offset is needed as long as somebody subscribes to its topic; without, the clock runs from when the
    last member went; in a group that never had members, from each commit.
    """
    stored = group.stored
    if group.is_simple:
        return _expired_since_commit(group, retention_ms, now_ms, skip=set())
    if group.state is EMPTY:
        since = stored.state_timestamp_ms
        return [
            key
            for key, value in stored.offsets.items()
            if _is_over(value, value.commit_timestamp if since < 0 else since, retention_ms, now_ms)
        ]
    if group.state is STABLE and (topics := group.topics()) is not None:
        return _expired_since_commit(group, retention_ms, now_ms, skip=topics)
    return []


def _expired_since_commit(group: Group, retention_ms: int, now_ms: int, *, skip: set[str]) -> list[TopicPartition]:
    return [
        key
        for key, value in group.stored.offsets.items()
        if key[0] not in skip and _is_over(value, value.commit_timestamp, retention_ms, now_ms)
    ]


def _is_over(value: OffsetCommitValue, since_ms: int, retention_ms: int, now_ms: int) -> bool:
    if value.expire_timestamp >= 0:
        return now_ms >= value.expire_timestamp
    return now_ms - since_ms >= retention_ms
