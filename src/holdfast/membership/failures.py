"""Failures of a membership or a commit as data, from which the client creates exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.membership.error_actions import describe_error
from holdfast.wire.error_codes import ErrorCode


class FailureKind(Enum):
    FENCED = "another process holds the instance id"
    REFUSED = "the coordinator refuses this member"
    NOT_AUTHENTICATED = "the broker rejects the credentials"
    UNSUPPORTED = "the broker is too old"
    ASSIGNOR = "the assignor failed"
    REBALANCING = "the group is rebalancing"
    NO_LONGER_MEMBER = "the coordinator no longer has this member"
    COMMIT_REFUSED = "the coordinator refuses the commit"
    TIMED_OUT = "no answer in time"


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    message: str
    code: ErrorCode | None = None
    retriable: bool = False
    """Whether the same call may succeed after the next poll."""


def known_code(code: int) -> ErrorCode | None:
    try:
        return ErrorCode(code) if code else None
    except ValueError:
        return None


def refusal(group_id: str, what: str, code: int) -> Failure:
    kind = FailureKind.UNSUPPORTED if code == ErrorCode.UNSUPPORTED_VERSION else FailureKind.REFUSED
    return Failure(kind, f"{what}: group {group_id!r}, {describe_error(code)}", known_code(code))


def fenced(group_id: str, instance_id: str | None, member_id: str) -> Failure:
    message = (
        f"fenced: another process has joined group {group_id!r} as instance {instance_id!r} and "
        f"replaced member {member_id!r}. Two processes must not use the same group.instance.id: stop one "
        "of them, or give it an id of its own and restart it"
    )
    return Failure(FailureKind.FENCED, message, ErrorCode.FENCED_INSTANCE_ID)


def static_membership_unsupported(instance_id: str, address: str, highest_join: int) -> Failure:
    message = (
        f"group.instance.id is set to {instance_id!r}, but the broker at {address} knows no static members (JoinGroup "
        f"up to v{highest_join}, v5 is needed): use a newer broker, or set static.membership.fallback=dynamic"
    )
    return Failure(FailureKind.UNSUPPORTED, message, ErrorCode.UNSUPPORTED_VERSION)


def commit_while_unjoined(group_id: str) -> Failure:
    message = (
        f"the commit was not sent: this consumer is not in group {group_id!r} at present, and other members may own "
        "its partitions; poll() joins again"
    )
    return Failure(FailureKind.NO_LONGER_MEMBER, message, retriable=True)


def commit_not_member(group_id: str, code: int) -> Failure:
    message = (
        f"the offsets were not stored: group {group_id!r} has members, and this consumer is not one "
        "of them; subscribe(), or commit with another group.id"
    )
    return Failure(FailureKind.COMMIT_REFUSED, message, known_code(code))


def commit_after_expulsion(code: int) -> Failure:
    message = (
        f"the offsets were not stored: {describe_error(code, 'the group went on without this member')}. Other "
        "members may own its partitions by now; poll() joins again. If processing takes long, raise "
        "max.poll.interval.ms"
    )
    return Failure(FailureKind.NO_LONGER_MEMBER, message, known_code(code))


def commit_timed_out(group_id: str, last_error: int) -> Failure:
    detail = f"; its last error was {describe_error(last_error, 'try again later')}" if last_error else ""
    message = f"the coordinator of group {group_id!r} did not store the offsets in time{detail}"
    return Failure(FailureKind.TIMED_OUT, message, known_code(last_error), retriable=True)


def commit_during_rebalance() -> Failure:
    message = "the group is rebalancing, and the offsets were not stored; poll() joins the new generation"
    return Failure(FailureKind.REBALANCING, message, ErrorCode.REBALANCE_IN_PROGRESS, retriable=True)


def commit_before_rebalance() -> Failure:
    message = (
        "the offsets were not stored: the group has rebalanced since the commit was made, and other members may own "
        "the partitions; commit the partitions that this member has now"
    )
    return Failure(FailureKind.REBALANCING, message, retriable=True)
