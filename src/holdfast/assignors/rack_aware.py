"""Rack-aware: as balanced as round robin, and among all balanced assignments one with the most reads from the member's
own rack.

Range also uses racks (KIP-881), but only after it has fixed the number of partitions of each topic for each member.
Here only the totals are fixed: topics with the same subscribers are distributed together. Assigning one partition after
the other does not find the best result, because an early member may take a partition that only a later one could have
used. The best result is the maximum flow from partitions over racks to members.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.java_order import subscribers
from holdfast.assignors.max_flow import max_flow
from holdfast.types import TopicPartition

_Node = tuple[str, frozenset[str] | str]

_PARTITIONS: Final[_Node] = ("source", "")
_ONE_MORE: Final[_Node] = ("one more than the others", "")
_MEMBERS: Final[_Node] = ("sink", "")


class RackAwareAssignor(Assignor):
    """If all members have the same topics, their totals differ by one at most.

    Otherwise that holds for each set of topics with the same members.

    A member's rack is the one in its subscription (`client.rack`, from version 3 on), or else the one that its assignor
    was created with, which is sent as user data, for subscriptions without a field for it. A member without a rack gets
    partitions that are near to no member.
    """

    name = "holdfast-rack-aware"

    def __init__(self, rack: str | None = None) -> None:
        self.rack = rack

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        return self.rack.encode() if self.rack else None

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        heaps: dict[tuple[str, ...], list[TopicPartition]] = defaultdict(list)
        for topic, members in subscribers(cluster, subscriptions).items():
            heaps[tuple(members)] += [(topic, number) for number in range(cluster.partitions[topic])]
        for sharing, heap in heaps.items():
            racks = {member: _rack(subscriptions[member]) for member in sharing}
            _distribute_by_rack(_by_racks(cluster, heap, frozenset(filter(None, racks.values()))), racks, assigned)
        return {member: MemberAssignment(_by_topic(partitions)) for member, partitions in assigned.items()}


def _rack(subscription: MemberSubscription) -> str | None:
    # Unreadable data of another member means no rack; it must not fail the group.
    return subscription.rack or (subscription.user_data or b"").decode(errors="ignore") or None


def _by_racks(
    cluster: Cluster, heap: Iterable[TopicPartition], known: frozenset[str]
) -> dict[frozenset[str], deque[TopicPartition]]:
    """Partitions grouped by the members that they are near to, in order."""
    kinds: dict[frozenset[str], deque[TopicPartition]] = defaultdict(deque)
    for topic, number in heap:
        racks = cluster.racks.get(topic, ())
        kinds[known & frozenset(racks[number] if number < len(racks) else ())].append((topic, number))
    return kinds


def _distribute_by_rack(
    kinds: Mapping[frozenset[str], deque[TopicPartition]],
    racks: Mapping[str, str | None],
    assigned: Mapping[str, list[TopicPartition]],
) -> None:
    """Adds to `assigned` first near partitions, as many as balance allows, then the rest for members below their
    quota."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for member, rack in racks.items():
        if rack is not None:
            neighbours[rack].append(member)
    each, one_more = divmod(sum(map(len, kinds.values())), len(racks))
    sent = max_flow(_network(kinds, neighbours, each, one_more), _PARTITIONS, _MEMBERS)
    larger: set[str] = set()
    for rack, members in neighbours.items():
        larger.update(_least_first(members, assigned)[: sent[("rack", rack), _ONE_MORE]])
    others = [member for member in racks if member not in larger]
    larger.update(_least_first(others, assigned)[: one_more - len(larger)])
    room = {member: each + (member in larger) for member in racks}
    for rack, members in neighbours.items():
        near = [
            kind.popleft()
            for where, kind in kinds.items()
            if rack in where
            for _ in range(sent[("near", where), ("rack", rack)])
        ]
        _distribute(near, members, room, assigned)
    _distribute([partition for kind in kinds.values() for partition in kind], list(racks), room, assigned)


def _network(
    kinds: Mapping[frozenset[str], Sequence[TopicPartition]],
    neighbours: Mapping[str, Sequence[str]],
    each: int,
    one_more: int,
) -> dict[tuple[_Node, _Node], int]:
    """From partitions to the members of a rack: the smaller quota, and one more for as many as may have it."""
    edges: dict[tuple[_Node, _Node], int] = {(_ONE_MORE, _MEMBERS): one_more}
    for rack, members in neighbours.items():
        edges[("rack", rack), _MEMBERS] = each * len(members)
        edges[("rack", rack), _ONE_MORE] = min(one_more, len(members))
    for where, kind in kinds.items():
        edges[_PARTITIONS, ("near", where)] = len(kind)
        edges |= {(("near", where), ("rack", rack)): len(kind) for rack in sorted(where)}
    return edges


def _least_first(members: Iterable[str], assigned: Mapping[str, list[TopicPartition]]) -> list[str]:
    return sorted(members, key=lambda member: len(assigned[member]))


def _distribute(
    partitions: Sequence[TopicPartition],
    members: Sequence[str],
    room: dict[str, int],
    assigned: Mapping[str, list[TopicPartition]],
) -> None:
    around = deque(member for member in members if room[member])
    for partition in partitions:
        member = around.popleft()
        assigned[member].append(partition)
        room[member] -= 1
        if room[member]:
            around.append(member)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        numbers[topic].append(number)
    return dict(numbers)
