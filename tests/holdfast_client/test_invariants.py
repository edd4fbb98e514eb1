"""The checks of `invariants.py` can fail: each gets a history in which the invariant does not hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.holdfast_client.group_history import Commit, Generation
from tests.holdfast_client.invariants import (
    check_all,
    commits_follow_processing,
    every_ownership_begins_at_the_commit,
    nothing_is_lost,
    only_owners_commit,
    processed_twice,
)
from tests.holdfast_client.worker_log import WorkerLog

A, B = "a-1", "b-1"


class WorkerRun:
    """A member's log, written by hand."""

    def __init__(self, path: Path, member_id: str) -> None:
        self._path = path
        self._member_id = member_id

    def report(self, at_ms: int, event: str, **fields: Any) -> WorkerRun:
        line = {"event": event, "at_ms": at_ms, "member_id": self._member_id} | fields
        with self._path.open("a") as log:
            log.write(json.dumps(line) + "\n")
        return self

    def assigned(self, at_ms: int) -> WorkerRun:
        return self.report(at_ms, "assigned", partitions=[0])

    def processed(self, at_ms: int, *offsets: int) -> WorkerRun:
        return self.report(at_ms, "processed", records={0: [(offset, offset) for offset in offsets]})

    def committing(self, at_ms: int, offset: int) -> WorkerRun:
        return self.report(at_ms, "committing", offsets={0: offset})

    def revoked(self, at_ms: int) -> WorkerRun:
        return self.report(at_ms, "revoked", partitions=[0])

    @property
    def log(self) -> WorkerLog:
        return WorkerLog("member", self._path)


@pytest.fixture
def a(tmp_path: Path) -> WorkerRun:
    return WorkerRun(tmp_path / "a.jsonl", A)


@pytest.fixture
def b(tmp_path: Path) -> WorkerRun:
    return WorkerRun(tmp_path / "b.jsonl", B)


def owned_by(number: int, owner: str | None, *members: str) -> Generation:
    clients = {member: member[0] for member in members}
    return Generation(number, "range", members[0], clients, {} if owner is None else {0: owner})


def commit(at_ms: int, offset: int, member_id: str = A) -> Commit:
    return Commit(0, offset, at_ms, member_id)


def test_a_run_without_fault(a: WorkerRun, b: WorkerRun) -> None:
    """The control: three records by one member, of which two are committed, and the rest by its successor."""
    a.assigned(1).processed(2, 0, 1).committing(3, 2).processed(5, 2)
    b.assigned(9).processed(10, 2, 3).committing(11, 4)
    history: list[Commit | Generation] = [owned_by(1, A, A), commit(4, 2), owned_by(2, B, B), commit(12, 4, B)]

    check_all([a.log, b.log], {0: 4}, history)

    assert processed_twice([a.log, b.log]) == {(0, 2)}


def test_a_record_that_no_worker_processed(a: WorkerRun) -> None:
    a.assigned(1).processed(2, 0, 1)

    nothing_is_lost([a.log], {0: 2})
    with pytest.raises(AssertionError, match=r"never processed: \{0: \[2\]\}"):
        nothing_is_lost([a.log], {0: 3})


def test_a_commit_before_its_record_was_processed(a: WorkerRun) -> None:
    a.assigned(1).committing(2, 1).processed(5, 0)

    with pytest.raises(AssertionError, match="before its last record was processed"):
        commits_follow_processing([a.log], [commit(3, 1)])


def test_a_commit_beyond_what_was_processed(a: WorkerRun) -> None:
    a.assigned(1).processed(2, 0).committing(3, 2)

    with pytest.raises(AssertionError, match="nobody has processed"):
        commits_follow_processing([a.log], [commit(4, 2)])


def test_a_commit_that_no_worker_logged(a: WorkerRun) -> None:
    a.assigned(1).processed(2, 0, 1).committing(3, 2)

    with pytest.raises(AssertionError, match="not what that member was about to commit"):
        commits_follow_processing([a.log], [commit(4, 1)])


@pytest.mark.parametrize("first", [1, 3], ids=["what was committed is repeated", "something is left out"])
def test_a_successor_that_does_not_begin_at_the_commit(a: WorkerRun, b: WorkerRun, first: int) -> None:
    a.assigned(1).processed(2, 0, 1, 2).committing(3, 2)
    b.assigned(9).processed(10, first)

    with pytest.raises(AssertionError, match="should have begun at 2"):
        every_ownership_begins_at_the_commit([a.log, b.log], [commit(4, 2)])


def test_a_hole_within_an_ownership(a: WorkerRun) -> None:
    a.assigned(1).processed(2, 0, 2)

    with pytest.raises(AssertionError, match="should have begun at 0"):
        every_ownership_begins_at_the_commit([a.log], [])


def test_records_of_a_partition_that_was_given_up(a: WorkerRun) -> None:
    a.assigned(1).processed(2, 0).revoked(3).processed(4, 1)

    with pytest.raises(AssertionError, match="which it does not own"):
        every_ownership_begins_at_the_commit([a.log], [])


def test_a_commit_by_a_member_that_was_replaced() -> None:
    with pytest.raises(AssertionError, match="is of no member of"):
        only_owners_commit([owned_by(1, A, A), owned_by(1, B, B), commit(5, 1)])


def test_a_commit_of_another_workers_partition() -> None:
    with pytest.raises(AssertionError, match="gave the partition to b-1"):
        only_owners_commit([owned_by(1, A, A, B), owned_by(2, B, A, B), commit(5, 1)])


def test_but_in_a_hand_over_the_last_owner_may_commit() -> None:
    only_owners_commit([owned_by(1, A, A, B), owned_by(2, None, A, B), commit(5, 1)])
