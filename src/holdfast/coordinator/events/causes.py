"""Why an event happened to a group: a code with its details.

Programs compare codes: reports, metrics labels and tests. People read sentences, which are rendered from the code and
the details where they are read, so that a sentence can be reworded without breaking a program.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class CauseCode(StrEnum):
    """One code per meaning. The values are stored in `__group_ledger` and do not change."""

    # Members that join.
    MEMBER_JOINED = "member_joined"
    REGISTRATION_COMPLETE = "registration_complete"
    LEADER_REJOINED = "leader_rejoined"
    SUBSCRIPTION_CHANGED = "subscription_changed"
    METADATA_CHANGED = "metadata_changed"
    MEMBER_REJOINED_AFTER_RELOAD = "member_rejoined_after_reload"
    STANDBY_CHANGED_PROTOCOLS = "standby_changed_protocols"

    # Static members that restart (KIP-345).
    STATIC_MEMBER_REPLACED = "static_member_replaced"
    STATIC_MEMBER_RESTARTED = "static_member_restarted"
    STATIC_MEMBER_CHANGED_PROTOCOL = "static_member_changed_protocol"
    STATIC_MEMBER_CHANGED_TOPICS = "static_member_changed_topics"
    FENCED_INSTANCE_ID = "fenced_instance_id"

    # Members that leave or are removed: what happened to the member, and what makes its group rebalance.
    LEAVE_REQUESTED = "leave_requested"
    REMOVED_BY_CLIENT = "removed_by_client"
    MEMBER_LEFT = "member_left"
    HEARTBEAT_EXPIRED = "heartbeat_expired"
    SESSION_EXPIRED = "session_expired"
    JOIN_TIMED_OUT = "join_timed_out"
    SYNC_TIMED_OUT = "sync_timed_out"
    PENDING_SYNC_EXPIRED = "pending_sync_expired"
    GROUP_FULL = "group_full"
    DISCONNECTED_WHILE_JOINING = "disconnected_while_joining"
    TAKEOVER_TIMED_OUT = "takeover_timed_out"
    MEMBER_DISCONNECTED = "member_disconnected"

    # The group.
    PROTOCOL_SELECTED = "protocol_selected"
    LAST_MEMBER_GONE = "last_member_gone"
    DELETE_REQUESTED = "delete_requested"
    GROUP_EXPIRED = "group_expired"
    CONFIG_CHANGED = "config_changed"
    NAME_USED_IN_KAFKA = "name_used_in_kafka"

    # A group that is read back from the log.
    MEMBER_STORED_TWICE = "member_stored_twice"
    MAX_SIZE_EXCEEDED = "max_size_exceeded"

    # Records that could not be stored.
    ASSIGNMENT_NOT_STORED = "assignment_not_stored"
    GENERATION_NOT_STORED = "generation_not_stored"
    EMPTY_GROUP_NOT_STORED = "empty_group_not_stored"
    MEMBER_ID_NOT_STORED = "member_id_not_stored"
    TAKEOVER_NOT_STORED = "takeover_not_stored"
    RESYNC_NOT_STORED = "resync_not_stored"
    REGISTRATION_END_NOT_STORED = "registration_end_not_stored"

    # Registration.
    REGISTERED_BY_CLIENT = "registered_by_client"
    REGISTRATION_CANCELLED = "registration_cancelled"
    REGISTRATION_TIMED_OUT = "registration_timed_out"

    # Standby members and target.group.size.
    REGISTERED_MEMBERS_MISSING = "registered_members_missing"
    ENOUGH_MEMBERS = "enough_members"
    STANDBYS_ADMITTED = "standbys_admitted"
    STANDBY_TOOK_OVER = "standby_took_over"
    OVER_TARGET_SIZE = "over_target_size"
    ABSENT_OVER_TARGET_SIZE = "absent_over_target_size"
    MEMBERS_BECAME_STANDBYS = "members_became_standbys"
    VACANCY_CLOSED = "vacancy_closed"
    VACANCY_TIMED_OUT = "vacancy_timed_out"
    NO_STANDBY_LEFT = "no_standby_left"

    # Members that are asked to rejoin on their own.
    VACANCY_OPEN = "vacancy_open"
    ASSIGNMENT_GREW = "assignment_grew"
    ASSIGNMENT_CHANGED_BEFORE_RELOAD = "assignment_changed_before_reload"
    REJOIN_TIMED_OUT = "rejoin_timed_out"

    # Topics that grow.
    TOPIC_GREW = "topic_grew"
    TOPIC_GREW_DURING_RESTART = "topic_grew_during_restart"
    TOPIC_GREW_BEFORE_RELOAD = "topic_grew_before_reload"
    RESYNC_APPLIED = "resync_applied"
    RESYNC_REJECTED = "resync_rejected"

    # Leaders that cannot assign.
    ASSIGNOR_ERROR = "assignor_error"
    ASSIGNMENT_FAILED = "assignment_failed"


COUNTS: Final[dict[CauseCode, str]] = {
    CauseCode.REGISTRATION_COMPLETE: "the registered members",
    CauseCode.MEMBER_LEFT: "the members that left",
    CauseCode.HEARTBEAT_EXPIRED: "the session timeout in milliseconds",
    CauseCode.TAKEOVER_TIMED_OUT: "standby.takeover.ms",
    CauseCode.REGISTERED_BY_CLIENT: "how long the members are expected, in milliseconds",
    CauseCode.REGISTRATION_TIMED_OUT: "the members that joined in time, of those registered",
    CauseCode.STANDBYS_ADMITTED: "the admitted standbys",
    CauseCode.OVER_TARGET_SIZE: "target.group.size",
    CauseCode.ABSENT_OVER_TARGET_SIZE: "target.group.size",
    CauseCode.MEMBERS_BECAME_STANDBYS: "the members that became standbys; the total is target.group.size",
    CauseCode.VACANCY_CLOSED: "target.group.size",
    CauseCode.RESYNC_APPLIED: "the assignments that grew, of all",
    CauseCode.ASSIGNOR_ERROR: "the error code of the assignor",
}
"""What `count` and `total` of a cause are. The ledger has them as `cause_count` and `cause_total`."""


class ResyncRejection(StrEnum):
    """Why the coordinator does not apply a resync. The values are stored in `__group_ledger` and do not change."""

    NOT_LEADER = "not_leader"
    GROUP_NOT_SETTLED = "group_not_settled"
    OTHER_EPOCH = "other_epoch"
    OTHER_MEMBERS = "other_members"
    UNREADABLE_ASSIGNMENT = "unreadable_assignment"
    PARTITIONS_LOST = "partitions_lost"
    PARTITIONS_OWNED = "partitions_owned"
    TOPICS_NOT_SUBSCRIBED = "topics_not_subscribed"


@dataclass(frozen=True, slots=True)
class Cause:
    """The fields that a code does not use are None."""

    code: CauseCode
    member: str | None = None
    """Another member than the one behind the event: its instance id, or else its member id."""
    count: int | None = None
    """`COUNTS` says of what."""
    total: int | None = None
    """Out of how many."""
    detail: str | None = None
    reason: ResyncRejection | None = None
    """The code of what `detail` says of a rejected resync."""

    @property
    def sentence(self) -> str:
        template = SENTENCES[self.code]
        if self.count is not None and self.count != 1:
            template = _PLURALS.get(self.code, template)
        return template.format(member=self.member, count=self.count, total=self.total, detail=self.detail)


SENTENCES: Final[dict[CauseCode, str]] = {
    CauseCode.MEMBER_JOINED: "a new member joined",
    CauseCode.REGISTRATION_COMPLETE: "the registered members are all there: {count}",
    CauseCode.LEADER_REJOINED: "the leader rejoined",
    CauseCode.SUBSCRIPTION_CHANGED: "a member changed its subscription",
    CauseCode.METADATA_CHANGED: "a member changed its metadata",
    CauseCode.MEMBER_REJOINED_AFTER_RELOAD: "a member rejoined after the broker's restart",
    CauseCode.STANDBY_CHANGED_PROTOCOLS: "a standby offers other protocols",
    CauseCode.STATIC_MEMBER_REPLACED: "no rebalance",
    CauseCode.STATIC_MEMBER_RESTARTED: "a static member restarted",
    CauseCode.STATIC_MEMBER_CHANGED_PROTOCOL: "a static member restarted with another protocol",
    CauseCode.STATIC_MEMBER_CHANGED_TOPICS: "a static member restarted with other topics",
    CauseCode.FENCED_INSTANCE_ID: "the instance id is held under another member id",
    CauseCode.LEAVE_REQUESTED: "it left",
    CauseCode.REMOVED_BY_CLIENT: "removed by {detail}",
    CauseCode.MEMBER_LEFT: "a member left",
    CauseCode.HEARTBEAT_EXPIRED: "silent for longer than its session of {count} ms",
    CauseCode.SESSION_EXPIRED: "a member's session expired",
    CauseCode.JOIN_TIMED_OUT: "did not rejoin in time",
    CauseCode.SYNC_TIMED_OUT: "joined but did not sync in time",
    CauseCode.PENDING_SYNC_EXPIRED: "members did not sync in time",
    CauseCode.GROUP_FULL: "the group is full",
    CauseCode.DISCONNECTED_WHILE_JOINING: "its connection closed while it waited for the other registered members",
    CauseCode.TAKEOVER_TIMED_OUT: "its connection closed and it sent nothing for {count} ms",
    CauseCode.MEMBER_DISCONNECTED: "a member's connection closed",
    CauseCode.PROTOCOL_SELECTED: "protocol {detail}",
    CauseCode.LAST_MEMBER_GONE: "the last member is gone",
    CauseCode.DELETE_REQUESTED: "deleted by request",
    CauseCode.GROUP_EXPIRED: "it has no members and no offsets",
    CauseCode.CONFIG_CHANGED: "{detail}",
    CauseCode.NAME_USED_IN_KAFKA: "a group of this name has members in Kafka's own coordinator",
    CauseCode.MEMBER_STORED_TWICE: "a member was stored twice",
    CauseCode.MAX_SIZE_EXCEEDED: "more members than group.max.size",
    CauseCode.ASSIGNMENT_NOT_STORED: "the assignment was not stored: {detail}",
    CauseCode.GENERATION_NOT_STORED: "the generation could not be stored: {detail}",
    CauseCode.EMPTY_GROUP_NOT_STORED: "the empty group could not be stored: {detail}",
    CauseCode.MEMBER_ID_NOT_STORED: "its new member id was not stored: {detail}",
    CauseCode.TAKEOVER_NOT_STORED: "its takeover was not stored: {detail}",
    CauseCode.RESYNC_NOT_STORED: "a resync was not stored: {detail}",
    CauseCode.REGISTRATION_END_NOT_STORED: "the end of a registration was not stored: {detail}",
    CauseCode.REGISTERED_BY_CLIENT: "registered by {detail} for {count} ms",
    CauseCode.REGISTRATION_CANCELLED: "cancelled by {detail}",
    CauseCode.REGISTRATION_TIMED_OUT: "{count} of {total} registered members joined in time",
    CauseCode.REGISTERED_MEMBERS_MISSING: "registered, and others are expected",
    CauseCode.ENOUGH_MEMBERS: "a standby: there are enough members without it",
    CauseCode.STANDBYS_ADMITTED: "standbys can have an assignment: {count}",
    CauseCode.STANDBY_TOOK_OVER: "it took over from {member}",
    CauseCode.OVER_TARGET_SIZE: "target.group.size is {count}",
    CauseCode.ABSENT_OVER_TARGET_SIZE: "absent, and others have joined: target.group.size is {count}",
    CauseCode.MEMBERS_BECAME_STANDBYS: "target.group.size is {total}: a member became a standby",
    CauseCode.VACANCY_CLOSED: "target.group.size is {count}: a vacancy is closed",
    CauseCode.VACANCY_TIMED_OUT: "no standby took over from {member} in time",
    CauseCode.NO_STANDBY_LEFT: "the last standby for a vacancy is gone",
    CauseCode.VACANCY_OPEN: "a vacancy is open",
    CauseCode.ASSIGNMENT_GREW: "its assignment grew",
    CauseCode.ASSIGNMENT_CHANGED_BEFORE_RELOAD: "its assignment had changed before the broker restarted",
    CauseCode.REJOIN_TIMED_OUT: "a member that was asked to rejoin did not",
    CauseCode.TOPIC_GREW: "topic {detail} grew and the leader does not know that it leads",
    CauseCode.TOPIC_GREW_DURING_RESTART: "a topic grew while its leader restarted",
    CauseCode.TOPIC_GREW_BEFORE_RELOAD: (
        "a topic had grown before the broker restarted, and the leader may not know that it leads"
    ),
    CauseCode.RESYNC_APPLIED: "{detail} partitions were added to {count} of {total} assignments",
    CauseCode.RESYNC_REJECTED: "the leader must rejoin: {detail}",
    CauseCode.ASSIGNOR_ERROR: "code {count}: {detail}",
    CauseCode.ASSIGNMENT_FAILED: "the leader could not assign",
}

_REJECTIONS: Final[dict[ResyncRejection, str]] = {
    ResyncRejection.NOT_LEADER: "it does not lead",
    ResyncRejection.GROUP_NOT_SETTLED: "the group is not settled",
    ResyncRejection.OTHER_EPOCH: "it worked from epoch {resync_epoch}, the group is in {group_epoch}",
    ResyncRejection.OTHER_MEMBERS: "the group has other members",
    ResyncRejection.UNREADABLE_ASSIGNMENT: "an assignment cannot be read: {error}",
    ResyncRejection.PARTITIONS_LOST: "{member_id} would lose partitions",
    ResyncRejection.PARTITIONS_OWNED: "partitions added to {member_id} have another owner",
    ResyncRejection.TOPICS_NOT_SUBSCRIBED: "{member_id} does not subscribe to the topics added to its assignment",
}


def resync_rejected(reason: ResyncRejection, **details: object) -> Cause:
    return Cause(CauseCode.RESYNC_REJECTED, detail=_REJECTIONS[reason].format(**details), reason=reason)


_PLURALS: Final[dict[CauseCode, str]] = {
    CauseCode.MEMBER_LEFT: "{count} members left",
    CauseCode.MEMBERS_BECAME_STANDBYS: "target.group.size is {total}: {count} members became standbys",
}

_SUMMARIES: Final[dict[CauseCode, str]] = {
    CauseCode.REGISTRATION_COMPLETE: "the registered members are all there",
    CauseCode.ASSIGNMENT_NOT_STORED: "the assignment was not stored",
    CauseCode.STANDBYS_ADMITTED: "standbys can have an assignment",
    CauseCode.MEMBERS_BECAME_STANDBYS: "target.group.size: members became standbys",
    CauseCode.VACANCY_CLOSED: "target.group.size: a vacancy is closed",
    CauseCode.VACANCY_TIMED_OUT: "no standby took over in time",
    CauseCode.TOPIC_GREW: "a topic grew and the leader does not know that it leads",
}
"""Of the causes of a rebalance whose sentence has details."""


def summary(code: str) -> str:
    """A sentence for all events with this code, without what differs between them."""
    try:
        known = CauseCode(code)
    except ValueError:
        return code
    found = _SUMMARIES.get(known, SENTENCES[known])
    return code.replace("_", " ") if "{" in found else found
