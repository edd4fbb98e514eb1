"""What a random run may show: the listed differences, and what Kafka leaves to chance.

A scenario says which difference it expects and where. Here each is recognised by what makes it: the step, and what the
group looked like before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.wire.apis.describe_groups import DescribedGroup
from holdfast.wire.apis.heartbeat import HEARTBEAT
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberResponse
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT
from holdfast.wire.apis.sync_group import SYNC_GROUP
from tests.conformance.servers import SETTINGS
from tests.conformance.side import Received, Side

UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID = 25, 27, 81, 82
MAX_SIZE = int(SETTINGS["group.max.size"])
NO_ASSIGNMENT = "assignment=x000000000000ffffffff"
_LED = re.compile(r" leader=[^,]*,| members=\[.*\]")
_NOTHING = re.compile(r".*group_state='Empty', protocol_type='', protocol_data='', members=\[\].*")
_DEAD = re.compile(r".*group_state='Dead', protocol_type='', protocol_data='', members=\[\].*")


@dataclass(frozen=True, slots=True)
class Explanation:
    number: int
    """In docs/differences.md; 0 for chance."""
    goes_on: bool
    """The groups are still alike."""


CHANCE = Explanation(0, goes_on=False)


def of_text(kafka: str, holdfast: str) -> Explanation | None:
    """Of an answer that is there on both servers, or of the group as DescribeGroups shows it."""
    if _NOTHING.fullmatch(kafka) and _DEAD.fullmatch(holdfast):
        return Explanation(28, goes_on=True)
    if NO_ASSIGNMENT in holdfast and holdfast.replace(NO_ASSIGNMENT, "assignment=x") == kafka:
        return Explanation(23, goes_on=True)
    return None


def of_silence(kafka: Side, received: Received, sent: Any) -> Explanation | None:
    """Kafka says nothing where Holdfast answers: a request that is pending for nobody."""
    request, code = received.request, getattr(received.answer, "error_code", 0)
    if request.API is SYNC_GROUP and code == UNKNOWN_MEMBER_ID:
        waiting = next(participant for participant in kafka.everyone if participant.name == received.participant.name)
        if waiting.open_requests[0].member_id not in kafka.shown_ids:
            return Explanation(20, goes_on=True)
    same_kind = type(sent) is type(request) and request.API in (JOIN_GROUP, SYNC_GROUP)
    if same_kind and code == REBALANCE_IN_PROGRESS and getattr(sent, "member_id", None) == request.member_id:
        return Explanation(20, goes_on=True)
    return None


def of_full_group(kafka: Received | None, holdfast: Received | None, before: DescribedGroup) -> Explanation | None:
    """Of the answers to the same join; either may be pending. `before` is Kafka's."""
    is_refused_by_kafka, is_refused = _is_refused(kafka), _is_refused(holdfast)
    statics = [member for member in before.members if member.group_instance_id is not None]
    if kafka is not None and is_refused_by_kafka and is_refused and kafka.request.member_id:
        # Kafka takes it out of the group, and lets those who waited only for it wait on.
        return Explanation(31, goes_on=False)
    if kafka is not None and is_refused_by_kafka and not is_refused:
        asked = kafka.request.member_id, kafka.request.group_instance_id
        is_static = any(member.member_id == asked[0] or member.group_instance_id == asked[1] for member in statics)
        return Explanation(19, goes_on=False) if is_static else None
    # Kafka gives the place of an absent static member to any newcomer.
    if is_refused and not is_refused_by_kafka and statics and len(before.members) >= MAX_SIZE:
        return Explanation(19, goes_on=False)
    return None


def _is_refused(received: Received | None) -> bool:
    return (
        received is not None
        and received.is_join
        and getattr(received.answer, "error_code", 0) == GROUP_MAX_SIZE_REACHED
    )


def of_unused_id(kafka: Received, before: DescribedGroup) -> Explanation | None:
    """A newcomer that left before it joined: Kafka rebalances the group that it was never in."""
    request, answer = kafka.request, kafka.answer
    if not isinstance(request, LeaveGroupRequest) or answer is None:
        return None
    entries = answer.members or [MemberResponse(request.member_id, None, answer.error_code)]
    members = {member.member_id for member in before.members}
    gone = [entry.member_id for entry in entries if entry.error_code == 0]
    is_unused = bool(gone) and all(member_id and member_id not in members for member_id in gone)
    return Explanation(32, goes_on=False) if is_unused else None


def of_empty_id(kafka: Received | None, holdfast: Received | None) -> Explanation | None:
    """A held instance id and no member id: Kafka fences the sender, Holdfast does not know it."""
    if kafka is None or holdfast is None or kafka.request.API not in (HEARTBEAT, SYNC_GROUP, OFFSET_COMMIT):
        return None
    has_no_id = kafka.request.group_instance_id is not None and not kafka.request.member_id
    codes = list(zip(_codes(kafka.answer), _codes(holdfast.answer), strict=False))
    expected = (FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID)
    is_listed = expected in codes and all(pair == expected or pair[0] == pair[1] for pair in codes)
    return Explanation(51, goes_on=True) if has_no_id and is_listed else None


def _codes(answer: Any) -> list[int]:
    """Of the answer, or of each partition in it."""
    topics = getattr(answer, "topics", None)
    if topics is None:
        return [getattr(answer, "error_code", 0)]
    return [partition.error_code for topic in topics for partition in topic.partitions]


def by_chance(before: str, joined: set[str], kafka: Sequence[str], holdfast: Sequence[str]) -> Explanation | None:
    """The same generation with another leader, and the old one, who would have stayed it, is not there.

    Of those who are, Kafka takes the one whose random id its hash table has first.
    """
    unled = [[_LED.sub("", line) for line in lines] for lines in (kafka, holdfast)]
    return CHANCE if unled[0] == unled[1] and before not in joined else None
