"""What the members of `bench.extension_members` tell, and what it comes to."""

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
    """What each member that was ever told its share holds in the end."""
    shares: dict[str, set[int]] = {}
    for event in events:
        share = shares.setdefault(event.member, set())
        if event.event == "assigned":
            share.update(event.partitions)
        elif event.event == "revoked":
            share.difference_update(event.partitions)
    return shares


def are_shared(events: Iterable[MemberEvent], members: Iterable[str], partitions: int) -> bool:
    """Each of these members has something, and every partition exactly one of them."""
    shares = owned(events)
    wanted = [shares.get(member, set()) for member in members]
    held = Counter(partition for share in wanted for partition in share)
    return all(wanted) and len(held) == partitions and set(held.values()) == {1}


def revocations(events: Iterable[MemberEvent], members: Iterable[str], since: float) -> dict[str, int]:
    """How often each of these members had to give something up."""
    found = dict.fromkeys(members, 0)
    for event in events:
        if event.event == "revoked" and event.partitions and event.at >= since and event.member in found:
            found[event.member] += 1
    return found


def consumed_again(
    events: Sequence[MemberEvent], partitions: Iterable[int], since: float, besides: str
) -> float | None:
    """When the last of these partitions had a record at another member; None: not yet."""
    at: dict[int, float] = {}
    for event in events:
        if event.event == "consumed" and event.at >= since and event.member != besides:
            for partition in event.partitions:
                at.setdefault(partition, event.at)
    wanted = set(partitions)
    return max(at[partition] for partition in wanted) if wanted <= at.keys() else None
