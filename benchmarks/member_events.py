"""The events that `benchmarks.extension_members` reports, and their evaluation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MemberEvent:
    at: float
    """Seconds of the monotonic clock."""
    member: str
    event: str
    partitions: tuple[int, ...]


def parsed(line: str) -> MemberEvent:
    """Raises the error of a member that failed."""
    said = json.loads(line)
    if said["event"] == "failed":
        raise RuntimeError(f"{said['member']} failed: {said['error']}")
    return MemberEvent(said["at"], said["member"], said["event"], tuple(said["partitions"]))


def owned(events: Iterable[MemberEvent]) -> dict[str, set[int]]:
    """The final partitions of each member that ever had an assignment."""
    assignments: dict[str, set[int]] = {}
    for event in events:
        partitions = assignments.setdefault(event.member, set())
        if event.event == "assigned":
            partitions.update(event.partitions)
        elif event.event == "revoked":
            partitions.difference_update(event.partitions)
    return assignments


def are_assigned(events: Iterable[MemberEvent], members: Iterable[str], partitions: int) -> bool:
    """Each of these members has partitions, and every partition has exactly one of them as its owner."""
    assignments = owned(events)
    wanted = [assignments.get(member, set()) for member in members]
    held = Counter(partition for partitions in wanted for partition in partitions)
    return all(wanted) and len(held) == partitions and set(held.values()) == {1}


def revocations(events: Iterable[MemberEvent], members: Iterable[str], since: float) -> dict[str, int]:
    """How often each of these members had partitions revoked."""
    found = dict.fromkeys(members, 0)
    for event in events:
        if event.event == "revoked" and event.partitions and event.at >= since and event.member in found:
            found[event.member] += 1
    return found


def consumed_again(
    events: Sequence[MemberEvent], partitions: Iterable[int], since: float, besides: str
) -> float | None:
    """When the last of these partitions had its first record at another member; None if that has not happened yet."""
    at: dict[int, float] = {}
    for event in events:
        if event.event == "consumed" and event.at >= since and event.member != besides:
            for partition in event.partitions:
                at.setdefault(partition, event.at)
    wanted = set(partitions)
    return max(at[partition] for partition in wanted) if wanted <= at.keys() else None
