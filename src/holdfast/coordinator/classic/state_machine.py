"""The state machine of a group: which state may follow which, and what each request gets in each state.

A group starts EMPTY. The first member that joins starts a rebalance: in PREPARING_REBALANCE the coordinator collects
JoinGroup requests until every member has sent one or the time is up. Then there is a new generation, and in
COMPLETING_REBALANCE the members wait for the leader's assignment. With the assignment the group is STABLE, until a
member joins, leaves, or is silent for longer than its session. A deleted group is DEAD, and so is
one that another broker serves.

The rules:

1. `PREDECESSORS` says from which states a state may be entered. `Group.transition_to` is the only way to enter one.
2. A request is classified (`RequestKind`), looked up (`DISPATCH[kind][state]`) and dispatched by its `Outcome`. No code
   answers a request from the state without the table. An outcome that the handler of a request does not have raises
   `ImpossibleRequest` (`Row.error`), so that no cell is read as another one.
3. In the states that have members the sender is identified first (`validate_member`), then its generation is compared,
   and then the table applies. EMPTY and DEAD have no members: there the table applies to every sender.
4. IMPOSSIBLE marks a classification that cannot occur in that state. Its lookup raises `ImpossibleRequest`, which names
   the request and the state. This is an error in the coordinator.

Standbys and members that are asked to rejoin are Holdfast's own (docs/glossary.md); `hooks` dispatches them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final

from holdfast.wire.error_codes import ErrorCode


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


class RequestKind(StrEnum):
    """The requests of a group, split where the outcome depends on more than the state."""

    JOIN_NEW = "JoinGroup of a new member"
    JOIN_UNKNOWN = "JoinGroup with an unknown member id"
    JOIN_STATIC_RESTARTED = "JoinGroup of a known instance id without a member id"
    JOIN_UNCHANGED = "JoinGroup of a follower, same protocols"
    JOIN_UNCHANGED_LEADER = "JoinGroup of the leader, same protocols"
    JOIN_CHANGED = "JoinGroup of a member, other protocols"
    JOIN_REQUESTED = "JoinGroup of a member that was asked to rejoin, same protocol names and topics"
    JOIN_STANDBY = "JoinGroup of a standby"
    SYNC = "SyncGroup"
    SYNC_STANDBY = "SyncGroup of a standby"
    HEARTBEAT = "Heartbeat"
    HEARTBEAT_REQUESTED = "Heartbeat of a member that is asked to rejoin"
    HEARTBEAT_STANDBY = "Heartbeat of a standby"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"
    COMMIT_WITHOUT_GENERATION = "OffsetCommit without a generation"
    FETCH_OFFSETS = "OffsetFetch"
    DELETE_OFFSETS = "OffsetDelete"
    DELETE_GROUP = "DeleteGroups"
    ADD_MEMBERS = "AddMembersToGroup"
    CANCEL_REGISTRATION = "CancelRegistration"
    CONFIGURE = "IncrementalAlterConfigs of the group"


class Outcome(Enum):
    """What a request gets: a text for the documentation, and the error code if it is one."""

    error: ErrorCode

    ACCEPT = "accepted"
    AWAIT = "answered when the phase is over"
    REBALANCE = "starts a rebalance; answered when its join phase is over"
    CURRENT_GENERATION = "answered at once with the current generation"
    EMPTY_ASSIGNMENT = "answered with an empty assignment"
    REPLACE = "answered with the current generation under a new member id, once that is stored"
    ASSIGNMENT = "answered with the stored assignment"
    UNSUBSCRIBED = "accepted for topics that no member subscribes to"
    IMPOSSIBLE = "—"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS", ErrorCode.REBALANCE_IN_PROGRESS
    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID", ErrorCode.UNKNOWN_MEMBER_ID
    NOT_AVAILABLE = "COORDINATOR_NOT_AVAILABLE", ErrorCode.COORDINATOR_NOT_AVAILABLE
    NON_EMPTY_GROUP = "NON_EMPTY_GROUP", ErrorCode.NON_EMPTY_GROUP
    NOT_FOUND = "GROUP_ID_NOT_FOUND", ErrorCode.GROUP_ID_NOT_FOUND

    def __new__(cls, text: str, error: ErrorCode = ErrorCode.NONE) -> Outcome:
        outcome = object.__new__(cls)
        outcome._value_ = text
        outcome.error = error
        return outcome


_A, _K = Outcome, RequestKind
_ACCEPT, _AWAIT, _CURRENT, _NEVER = _A.ACCEPT, _A.AWAIT, _A.CURRENT_GENERATION, _A.IMPOSSIBLE
_UNKNOWN, _REBALANCING, _GONE = _A.UNKNOWN_MEMBER_ID, _A.REBALANCE_IN_PROGRESS, _A.NOT_AVAILABLE
_NONE, _FULL = _A.EMPTY_ASSIGNMENT, _A.NON_EMPTY_GROUP
_STATES = (EMPTY, PREPARING, COMPLETING, STABLE, DEAD)

OUTCOMES: Final[Mapping[RequestKind, Mapping[GroupState, Outcome]]] = {
    kind: dict(zip(_STATES, outcomes, strict=True))
    for kind, outcomes in {
        #                              Empty          Preparing        Completing       Stable           Dead
        _K.JOIN_NEW:                  (_A.REBALANCE,  _AWAIT,          _A.REBALANCE,    _A.REBALANCE,    _GONE),
        _K.JOIN_UNKNOWN:              (_UNKNOWN,      _UNKNOWN,        _UNKNOWN,        _UNKNOWN,        _GONE),
        _K.JOIN_STATIC_RESTARTED:     (_NEVER,        _AWAIT,          _A.REBALANCE,    _A.REPLACE,      _NEVER),
        _K.JOIN_UNCHANGED:            (_NEVER,        _AWAIT,          _CURRENT,        _CURRENT,        _NEVER),
        _K.JOIN_UNCHANGED_LEADER:     (_NEVER,        _AWAIT,          _CURRENT,        _A.REBALANCE,    _NEVER),
        _K.JOIN_CHANGED:              (_NEVER,        _AWAIT,          _A.REBALANCE,    _A.REBALANCE,    _NEVER),
        _K.JOIN_REQUESTED:            (_NEVER,        _NEVER,          _NEVER,          _CURRENT,        _NEVER),
        _K.JOIN_STANDBY:              (_NEVER,        _CURRENT,        _CURRENT,        _CURRENT,        _NEVER),
        _K.SYNC:                      (_UNKNOWN,      _REBALANCING,    _AWAIT,          _A.ASSIGNMENT,   _GONE),
        _K.SYNC_STANDBY:              (_NEVER,        _NONE,           _NONE,           _NONE,           _NEVER),
        _K.HEARTBEAT:                 (_UNKNOWN,      _REBALANCING,    _ACCEPT,         _ACCEPT,         _GONE),
        _K.HEARTBEAT_REQUESTED:       (_NEVER,        _NEVER,          _NEVER,          _REBALANCING,    _NEVER),
        _K.HEARTBEAT_STANDBY:         (_NEVER,        _ACCEPT,         _ACCEPT,         _ACCEPT,         _NEVER),
        _K.LEAVE:                     (_ACCEPT,       _ACCEPT,         _ACCEPT,         _ACCEPT,         _GONE),
        _K.COMMIT:                    (_UNKNOWN,      _ACCEPT,         _REBALANCING,    _ACCEPT,         _GONE),
        _K.COMMIT_WITHOUT_GENERATION: (_ACCEPT,       _UNKNOWN,        _UNKNOWN,        _UNKNOWN,        _GONE),
        _K.FETCH_OFFSETS:             (_ACCEPT,       _ACCEPT,         _ACCEPT,         _ACCEPT,         _NEVER),
        _K.DELETE_OFFSETS:            (_ACCEPT,       _A.UNSUBSCRIBED, _A.UNSUBSCRIBED, _A.UNSUBSCRIBED, _A.NOT_FOUND),
        _K.DELETE_GROUP:              (_ACCEPT,       _FULL,           _FULL,           _FULL,           _A.NOT_FOUND),
        _K.ADD_MEMBERS:               (_ACCEPT,       _ACCEPT,         _ACCEPT,         _ACCEPT,         _GONE),
        _K.CANCEL_REGISTRATION:       (_ACCEPT,       _ACCEPT,         _ACCEPT,         _ACCEPT,         _ACCEPT),
        _K.CONFIGURE:                 (_ACCEPT,       _ACCEPT,         _ACCEPT,         _ACCEPT,         _GONE),
    }.items()
}  # fmt: skip


class ImpossibleRequest(Exception):
    """An error in the coordinator: a request that cannot occur in this state, or an outcome that its handler lacks."""


class Row(dict[GroupState, Outcome]):
    """A row of the table without the IMPOSSIBLE cells, whose lookup raises `ImpossibleRequest`."""

    def __init__(self, kind: RequestKind, outcomes: Mapping[GroupState, Outcome]) -> None:
        super().__init__({state: found for state, found in outcomes.items() if found is not Outcome.IMPOSSIBLE})
        self.kind = kind

    def __missing__(self, state: GroupState) -> Outcome:
        raise ImpossibleRequest(f"{self.kind} in a group that is {state}")

    def error(self, state: GroupState) -> ErrorCode:
        """The error of the request. Raises `ImpossibleRequest` for an action, because the handler does not have it."""
        found = self[state]
        if not found.error:
            raise ImpossibleRequest(f"{self.kind} in a group that is {state} cannot be {found.name}")
        return found.error

    def rejection(self, state: GroupState) -> ErrorCode:
        """The error of the request; NONE if the group accepts it."""
        return ErrorCode.NONE if self[state] is _ACCEPT else self.error(state)

    def error_without_members(self, state: GroupState) -> ErrorCode:
        """The error for a sender that is not a member, in a state without members; NONE in other states."""
        return self.error(state) if state in WITHOUT_MEMBERS else ErrorCode.NONE


WITHOUT_MEMBERS: Final = frozenset({EMPTY, DEAD})
DISPATCH: Final[Mapping[RequestKind, Row]] = {kind: Row(kind, outcomes) for kind, outcomes in OUTCOMES.items()}
"""`OUTCOMES` as requests look it up."""
