"""What must hold of every group, whatever was done to it: proven from its members' logs and its stored history.

Times are compared across processes of one machine, by its wall clock, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.holdfast_client.group_history import Commit, Generation, commits
from tests.holdfast_client.worker_log import WorkerLog

History = Sequence[Commit | Generation]


@dataclass
class Ownership:
    """One member's time with one partition."""

    log: WorkerLog
    partition: int
    since_ms: int
    offsets: list[int] = field(default_factory=list)
    """What it processed, in order."""


def check_all(logs: Sequence[WorkerLog], written: Mapping[int, int], history: list[Commit | Generation]) -> None:
    stored = commits(history)
    assert stored, "nothing was ever committed: there is nothing to prove"
    nothing_is_lost(logs, written)
    commits_follow_processing(logs, stored)
    every_ownership_begins_at_the_commit(logs, stored)
    only_owners_commit(history)


def nothing_is_lost(logs: Sequence[WorkerLog], written: Mapping[int, int]) -> None:
    """Every number was processed at least once."""
    processed: dict[int, set[int]] = {partition: set() for partition in written}
    for log in logs:
        for event in log.events_of("processed"):
            for partition, done in event.records.items():
                processed[partition].update(number for _, number in done)
    lost = {partition: sorted(set(range(count)) - processed[partition]) for partition, count in written.items()}
    assert not any(lost.values()), f"never processed: {lost}"


def commits_follow_processing(logs: Sequence[WorkerLog], stored: Sequence[Commit]) -> None:
    """What was committed had been processed by then, and by the committer itself where it says who it is."""
    done: dict[tuple[int, int], int] = {}
    intended: dict[tuple[str, int, int], int] = {}
    for log in logs:
        for event in log.events_of("processed"):
            for partition, records in event.records.items():
                for offset, _ in records:
                    when = done.get((partition, offset), event.at_ms)
                    done[partition, offset] = min(when, event.at_ms)
        for event in log.events_of("committing"):
            for partition, offset in event.offsets.items():
                intended[event.member_id, partition, offset] = event.at_ms
    for commit in stored:
        last = done.get((commit.partition, commit.offset - 1))
        if commit.offset > 0:
            assert last is not None, f"{commit} is beyond what was processed: its last record nobody has processed"
            assert last <= commit.at_ms, f"{commit} came before its last record was processed"
        if commit.member_id:
            mine = intended.get((commit.member_id, commit.partition, commit.offset))
            assert mine is not None and mine <= commit.at_ms, f"{commit} is not what that member was about to commit"


def every_ownership_begins_at_the_commit(logs: Sequence[WorkerLog], stored: Sequence[Commit]) -> None:
    """Any member that gets a partition goes on exactly where the group's commit was then, and leaves nothing out: what
    is processed twice was not committed when the partition moved."""
    for log in logs:
        for ownership in ownerships(log):
            if not ownership.offsets:
                continue
            before = [
                commit.offset
                for commit in stored
                # One of the same millisecond is its own: to take over from another takes several round trips.
                if commit.partition == ownership.partition and commit.at_ms < ownership.since_ms
            ]
            first = before[-1] if before else 0
            expected = list(range(first, first + len(ownership.offsets)))
            assert ownership.offsets == expected, f"{ownership} should have begun at {first}"


def ownerships(log: WorkerLog) -> Iterator[Ownership]:
    held: dict[int, Ownership] = {}
    for event in log.events:
        match event.kind:
            case "assigned":
                for partition in event.partitions:
                    assert partition not in held, f"{log.name} was given {partition} twice"
                    held[partition] = Ownership(log, partition, event.at_ms)
            case "processed":
                for partition, records in event.records.items():
                    assert partition in held, f"{log.name} processed records of {partition}, which it does not own"
                    held[partition].offsets += [offset for offset, _ in records]
            case "revoked" | "lost":
                for partition in event.partitions:
                    yield held.pop(partition)
    yield from held.values()


def only_owners_commit(history: History) -> None:
    """Every commit was made by the partition's owner in the generation that was stored last; while a cooperative
    hand-over lasts nobody owns it, and a member that had it before may still commit."""
    now: Generation | None = None
    for entry in history:
        if isinstance(entry, Generation):
            now = entry
        elif entry.member_id:
            assert now is not None and entry.member_id in now.clients, f"{entry} is of no member of {now}"
            owner = now.owners.get(entry.partition, entry.member_id)
            assert owner == entry.member_id, f"{entry}, but {now} gave the partition to {owner}"


def processed_twice(logs: Sequence[WorkerLog]) -> set[tuple[int, int]]:
    """Partition and offset of every record that was."""
    seen: set[tuple[int, int]] = set()
    again: set[tuple[int, int]] = set()
    for log in logs:
        for event in log.events_of("processed"):
            for partition, records in event.records.items():
                for offset, _ in records:
                    (again if (partition, offset) in seen else seen).add((partition, offset))
    return again
