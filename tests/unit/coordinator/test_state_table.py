"""Every cell of the state table, walked through the harness: the request is looked up in it, and gets what it says.

The control is a mutation: with any other outcome in its cell, a request gets something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from holdfast.coordinator.classic.state_machine import (
    COMPLETING,
    DEAD,
    DISPATCH,
    EMPTY,
    OUTCOMES,
    PREPARING,
    STABLE,
    GroupState,
    ImpossibleRequest,
    Outcome,
    RequestKind,
    Row,
)
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import LONG_MS, assignment, is_standby, partitions, reads, worker
from tests.unit.coordinator.harness import SESSION_MS, CoordinatorHarness, Handle
from tests.unit.coordinator.members import Consumer, joined, stable

NONE: Final = ErrorCode.NONE
ALL_CELLS: Final = [(kind, state) for kind in RequestKind for state in GroupState]
CELLS: Final = [(kind, state) for kind, state in ALL_CELLS if OUTCOMES[kind][state] is not Outcome.IMPOSSIBLE]
IMPOSSIBLE_CELLS: Final = [cell for cell in ALL_CELLS if cell not in CELLS]
OF_STANDBYS: Final = {RequestKind.JOIN_STANDBY, RequestKind.SYNC_STANDBY, RequestKind.HEARTBEAT_STANDBY}
OF_REQUESTED: Final = {RequestKind.JOIN_REQUESTED, RequestKind.HEARTBEAT_REQUESTED}
FIRST_EPOCH: Final = 1_000_000


def name_of(cell: object) -> str:
    return cell.name if isinstance(cell, RequestKind | GroupState) else str(cell)


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> set[object]:
    """The cells that are looked up."""
    noted: set[object] = set()

    def look_up(row: Row, state: GroupState) -> Outcome:
        noted.add((row.kind, state))
        return dict.__getitem__(row, state)

    monkeypatch.setattr(Row, "__getitem__", look_up)
    return noted


# -- groups in each state ----------------------------------------------------------------------------------------------


@dataclass
class Scene:
    harness: CoordinatorHarness
    leader: Consumer
    follower: Consumer
    other: Consumer
    standby: Consumer


def scene(state: GroupState, kind: RequestKind) -> Scene:
    """A group of three static members in this state. The third is the one that makes it rebalance."""
    harness = CoordinatorHarness()
    harness.topics["t"] = 10
    leader, follower, other = (
        worker(harness, name, number, session_ms=LONG_MS, rebalance_ms=LONG_MS) for number, name in enumerate("LFO")
    )
    group = Scene(harness, leader, follower, other, worker(harness, "S", session_ms=LONG_MS))
    if state is EMPTY:
        harness.commit({("t", 0): 7})
    elif state is DEAD:
        stable(leader)
        harness.commit({("t", 0): 7}, member_id=leader.id, generation=leader.generation, instance="L")
        harness.pause_appends()
        leader.leave()
        harness.delete_later()  # with the next request it is queued behind the record of the empty group
    else:
        stable(leader, follower, other)
        other.commit(7)
        if kind in OF_STANDBYS:
            harness.configure(target_size=3)
            is_standby(group.standby)
        if kind in OF_REQUESTED:
            grown = {follower.id: assignment(1, 5)}
            assert partitions(leader.sync_with(grown, resync_from_epoch=FIRST_EPOCH)) == {0}
    if state in (PREPARING, COMPLETING):
        other.metadata = reads("t", "u")
        assert other.join().is_pending
    if state is COMPLETING:
        joined(leader, follower, wait_ms=0)
        other.take()
        if kind in OF_STANDBYS:
            group.standby.join()
    return group


# -- requests ----------------------------------------------------------------------------------------------------------


def join_changed(group: Scene) -> Handle:
    group.follower.metadata = reads("t", "v")
    return group.follower.join()


def join_requested(group: Scene) -> Handle:
    group.follower.metadata = reads("t", owns=[1], generation=1)
    return group.follower.join()


def heartbeat_of(consumer: Consumer) -> Handle:
    return consumer.harness.heartbeat_later(consumer.id, consumer.generation, instance=consumer.instance)


REQUESTS: Final[Mapping[RequestKind, Callable[[Scene], Handle]]] = {
    RequestKind.JOIN_NEW: lambda group: group.harness.join(instance="N", metadata=reads("t"), session_ms=SESSION_MS),
    RequestKind.JOIN_UNKNOWN: lambda group: group.harness.join("nobody", metadata=reads("t")),
    RequestKind.JOIN_STATIC_RESTARTED: lambda group: group.follower.restarted().join(),
    RequestKind.JOIN_UNCHANGED: lambda group: group.follower.join(),
    RequestKind.JOIN_UNCHANGED_LEADER: lambda group: group.leader.join(),
    RequestKind.JOIN_CHANGED: join_changed,
    RequestKind.JOIN_REQUESTED: join_requested,
    RequestKind.JOIN_STANDBY: lambda group: group.standby.join(),
    RequestKind.SYNC: lambda group: group.follower.sync() if group.follower.id else group.harness.sync("nobody", 1),
    RequestKind.SYNC_STANDBY: lambda group: group.standby.sync(),
    RequestKind.HEARTBEAT: lambda group: heartbeat_of(group.leader),
    RequestKind.HEARTBEAT_REQUESTED: lambda group: heartbeat_of(group.follower),
    RequestKind.HEARTBEAT_STANDBY: lambda group: heartbeat_of(group.standby),
    RequestKind.LEAVE: lambda group: group.harness.leave((group.follower.id, "F")),
    RequestKind.COMMIT: lambda group: group.harness.commit(
        {("t", 0): 8}, member_id=group.leader.id or "nobody", generation=max(1, group.leader.generation), instance="L"
    ),
    RequestKind.COMMIT_WITHOUT_GENERATION: lambda group: group.harness.commit({("t", 0): 8}),
    RequestKind.FETCH_OFFSETS: lambda group: group.harness.fetch_later(),
    RequestKind.DELETE_OFFSETS: lambda group: group.harness.delete_offsets(("t", 0), ("other", 0)),
    RequestKind.DELETE_GROUP: lambda group: group.harness.delete_later(),
    RequestKind.ADD_MEMBERS: lambda group: group.harness.add_members("R"),
    RequestKind.CANCEL_REGISTRATION: lambda group: group.harness.cancel("R"),
    RequestKind.CONFIGURE: lambda group: group.harness.configure(target_size=5),
}


# -- what they get -----------------------------------------------------------------------------------------------------


def error_of(handle: Handle) -> ErrorCode:
    """Of the whole request, or the one that all its partitions have."""
    reply = handle.reply
    assert reply is not None, f"{handle} is not answered"
    if isinstance(reply, dict):
        (code,) = set(reply.values())
        return ErrorCode(code)
    if isinstance(reply, tuple):
        return ErrorCode(reply[0])
    return ErrorCode(getattr(reply, "error_code", reply))


def is_current_generation(group: Scene, handle: Handle) -> bool:
    return handle.code is NONE and handle.generation == group.harness.generation()


def gets(group: Scene, handle: Handle, expected: Outcome, state: GroupState) -> None:
    after = group.harness.state()
    match expected:
        case Outcome.AWAIT:
            assert (handle.is_pending, after) == (True, state)
        case Outcome.REBALANCE:
            assert (handle.is_pending, after) == (True, PREPARING)
        case Outcome.CURRENT_GENERATION:
            assert (is_current_generation(group, handle), after) == (True, state)
        case Outcome.REPLACE:
            assert (is_current_generation(group, handle), after) == (True, state)
            assert handle.member_id != group.follower.id
        case Outcome.EMPTY_ASSIGNMENT:
            assert partitions(handle) == set()
        case Outcome.ASSIGNMENT:
            assert partitions(handle) == {1}
        case Outcome.UNSUBSCRIBED:
            codes = {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("other", 0): NONE}
            assert handle.reply.partitions == codes
        case Outcome.ACCEPT:
            assert error_of(handle) is NONE
            if "OffsetFetch" in handle.what:
                assert {key: value.offset for key, value in handle.reply[1].items()} == {("t", 0): 7}
        case rejected:
            assert rejected.error is not NONE
            assert error_of(handle) is rejected.error


@pytest.mark.parametrize(("kind", "state"), CELLS, ids=name_of)
def test_a_request_is_looked_up_in_the_table_and_gets_what_it_says(
    kind: RequestKind, state: GroupState, lookups: set[object]
) -> None:
    group = scene(state, kind)
    lookups.clear()

    handle = REQUESTS[kind](group)
    group.harness.resume_appends()

    assert (kind, state) in lookups
    gets(group, handle, OUTCOMES[kind][state], state)


@pytest.mark.parametrize(("kind", "state"), CELLS, ids=name_of)
def test_control_with_any_other_outcome_in_its_cell_a_request_gets_something_else(
    kind: RequestKind, state: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = OUTCOMES[kind][state]
    ignored: list[Outcome] = []
    for other in set(Outcome) - {expected}:
        group = scene(state, kind)
        with monkeypatch.context() as patch:
            replace_cell(patch, kind, state, other)
            try:
                handle = REQUESTS[kind](group)
                group.harness.resume_appends()
                gets(group, handle, expected, state)
            except (AssertionError, ImpossibleRequest):
                continue  # another response, or another state, or the coordinator cannot do that
        ignored.append(other)
    assert not ignored


def replace_cell(patch: pytest.MonkeyPatch, kind: RequestKind, state: GroupState, other: Outcome) -> None:
    if other is Outcome.IMPOSSIBLE:
        patch.delitem(DISPATCH[kind], state)
    else:
        patch.setitem(DISPATCH[kind], state, other)


@pytest.mark.parametrize(("kind", "state"), CELLS, ids=name_of)
def test_a_request_that_cannot_come_up_is_an_error_that_names_it_and_the_state(
    kind: RequestKind, state: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = scene(state, kind)
    replace_cell(monkeypatch, kind, state, Outcome.IMPOSSIBLE)

    with pytest.raises(ImpossibleRequest, match=f"^{kind} in a group that is {state}$"):
        REQUESTS[kind](group)
        group.harness.resume_appends()


@pytest.mark.parametrize(("kind", "state"), IMPOSSIBLE_CELLS, ids=name_of)
def test_an_impossible_cell_cannot_be_looked_up(kind: RequestKind, state: GroupState) -> None:
    row = DISPATCH[kind]
    for look_up in (row.__getitem__, row.error, row.rejection):
        with pytest.raises(ImpossibleRequest, match=f"^{kind} in a group that is {state}$"):
            look_up(state)


def test_an_action_that_a_request_does_not_have_is_an_error_that_names_it() -> None:
    row = Row(RequestKind.HEARTBEAT, {STABLE: Outcome.AWAIT})

    with pytest.raises(ImpossibleRequest, match=r"^Heartbeat in a group that is Stable cannot be AWAIT$"):
        row.rejection(STABLE)


def cells_of(state: GroupState) -> Iterator[Outcome]:
    return (row[state] for row in OUTCOMES.values())


def test_no_row_and_no_column_is_without_an_outcome() -> None:
    assert set(OUTCOMES) == set(RequestKind) == set(REQUESTS)
    for state in GroupState:
        assert any(found is not Outcome.IMPOSSIBLE for found in cells_of(state))
    for row in OUTCOMES.values():
        assert set(row) == set(GroupState)
        assert any(found is not Outcome.IMPOSSIBLE for found in row.values())


def test_control_stable_is_the_only_state_in_which_a_member_is_asked_to_rejoin() -> None:
    group = scene(STABLE, RequestKind.HEARTBEAT_REQUESTED)

    assert group.follower.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.leader.heartbeat() is group.other.heartbeat() is NONE
