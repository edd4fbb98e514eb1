"""The states of a group, which may follow which, and what each request gets in each of them.

A group is born EMPTY. Whoever joins starts a rebalance: in PREPARING_REBALANCE the coordinator collects JoinGroup
requests until every member has sent one or the time is up. Then there is a new generation, and in
COMPLETING_REBALANCE everybody waits for the leader's assignment. With it the group is STABLE, until somebody joins,
leaves, or is silent for longer than its session. A group that is deleted is DEAD.

`PREDECESSORS` says from where a state may be entered. `ANSWERS` says what a request gets whose sender is a member
(or, for OffsetCommit, may commit) and whose generation is the group's; what comes before that, the identity and the
generation, is the same in every state and is checked in `identity`. The diagram in the docs is made from both.

Members that wait and members that were called are Holdfast's own, see `seats` and `calls`. While one is called its
heartbeats are answered REBALANCE_IN_PROGRESS, which is no matter of the group's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final


class GroupState(StrEnum):
    """Named as DescribeGroups names them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

PREDECESSORS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING}),
    PREPARING: frozenset({EMPTY, COMPLETING, STABLE}),
    COMPLETING: frozenset({PREPARING}),
    STABLE: frozenset({COMPLETING}),
    DEAD: frozenset(GroupState),
}


class Request(StrEnum):
    """What can be asked, split where the answer depends on more than the state."""

    JOIN_NEW = "JoinGroup of a new member"
    JOIN_STATIC_AGAIN = "JoinGroup of a known instance id without a member id"
    JOIN_UNCHANGED = "JoinGroup of a follower, same protocols"
    JOIN_UNCHANGED_LEADER = "JoinGroup of the leader, same protocols"
    JOIN_CHANGED = "JoinGroup of a member, other protocols"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    JOIN_CALLED = "JoinGroup of a member that was called, same protocol names and topics"
    JOIN_WAITING = "JoinGroup of a member that waits"
    SYNC_WAITING = "SyncGroup of a member that waits"
    HEARTBEAT_WAITING = "Heartbeat of a member that waits"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"


class Answer(Enum):
    """What becomes of a request."""

    ACCEPT = "accepted"
    PARK = "parked until the phase is over"
    REBALANCE = "parked; a rebalance begins"
    CURRENT = "answered at once with the current generation"
    NOTHING = "answered with an empty share"
    REPLACE = "answered with the current generation under a new member id, once that is stored"
    ASSIGNMENT = "answered with the stored assignment"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID"
    NOT_AVAILABLE = "COORDINATOR_NOT_AVAILABLE"


_A = Answer
_UNKNOWN, _BUSY = Answer.UNKNOWN_MEMBER_ID, Answer.REBALANCE_IN_PROGRESS
_STATES = (EMPTY, PREPARING, COMPLETING, STABLE, DEAD)

ANSWERS: Final[Mapping[Request, Mapping[GroupState, Answer]]] = {
    request: dict(zip(_STATES, (*answers, _A.NOT_AVAILABLE), strict=True))
    for request, answers in {
        #                              Empty          Preparing   Completing     Stable
        Request.JOIN_NEW:              (_A.REBALANCE,  _A.PARK,    _A.REBALANCE,  _A.REBALANCE),
        Request.JOIN_STATIC_AGAIN:     (_UNKNOWN,      _A.PARK,    _A.REBALANCE,  _A.REPLACE),
        Request.JOIN_UNCHANGED:        (_UNKNOWN,      _A.PARK,    _A.CURRENT,    _A.CURRENT),
        Request.JOIN_UNCHANGED_LEADER: (_UNKNOWN,      _A.PARK,    _A.CURRENT,    _A.REBALANCE),
        Request.JOIN_CHANGED:          (_UNKNOWN,      _A.PARK,    _A.REBALANCE,  _A.REBALANCE),
        Request.SYNC:                  (_UNKNOWN,      _BUSY,      _A.PARK,       _A.ASSIGNMENT),
        Request.HEARTBEAT:             (_UNKNOWN,      _BUSY,      _A.ACCEPT,     _A.ACCEPT),
        Request.JOIN_CALLED:           (_UNKNOWN,      _A.PARK,    _A.REBALANCE,  _A.CURRENT),
        Request.JOIN_WAITING:          (_UNKNOWN,      _A.CURRENT, _A.CURRENT,    _A.CURRENT),
        Request.SYNC_WAITING:          (_UNKNOWN,      _A.NOTHING, _A.NOTHING,    _A.NOTHING),
        Request.HEARTBEAT_WAITING:     (_UNKNOWN,      _A.ACCEPT,  _A.ACCEPT,     _A.ACCEPT),
        Request.LEAVE:                 (_A.ACCEPT,     _A.ACCEPT,  _A.ACCEPT,     _A.ACCEPT),
        Request.COMMIT:                (_A.ACCEPT,     _A.ACCEPT,  _BUSY,         _A.ACCEPT),
    }.items()
}  # fmt: skip
