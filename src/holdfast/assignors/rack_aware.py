"""Rack-aware: as balanced as round robin, and among all balanced choices one that reads the most from its own rack.

Range looks at racks too (KIP-881), but only after it has fixed how much of every single topic each member gets. Here
only the totals are fixed: topics with the same subscribers are shared out as one heap. The best choice is not found by
handing out one partition after the other, since whoever comes first may take what only another could have used; it is
the greatest flow from partitions over racks to members.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from holdfast.assignors.flow import most_through
from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.ordering import subscribers

Partition = tuple[str, int]
_Node = tuple[str, frozenset[str] | str]

_PARTITIONS: Final[_Node] = ("source", "")
_ONE_MORE: Final[_Node] = ("one more than the others", "")
_MEMBERS: Final[_Node] = ("sink", "")


class RackAwareAssignor(Assignor):
    """Where all members have the same topics their totals differ by one at most.

    Where they have not, that holds for each set of topics that the same members share.

    A member's rack is the one in its subscription (`client.rack`, from version 3 on) or else the one that its assignor
    was made with, which travels as user data: so it also works where subscriptions have no field for it. A member
    without a rack takes what is near to nobody.
    """

    name = "holdfast-rack-aware"

    def __init__(self, rack: str | None = None) -> None:
        self.rack = rack

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        return self.rack.encode() if self.rack else None

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        shares: dict[str, list[Partition]] = {member: [] for member in subscriptions}
        heaps: dict[tuple[str, ...], list[Partition]] = defaultdict(list)
        for topic, members in subscribers(cluster, subscriptions).items():
            heaps[tuple(members)] += [(topic, number) for number in range(cluster.partitions[topic])]
        for sharing, heap in heaps.items():
            racks = {member: _rack(subscriptions[member]) for member in sharing}
            _share_out(_by_racks(cluster, heap, frozenset(filter(None, racks.values()))), racks, shares)
        return {member: MemberAssignment(_by_topic(share)) for member, share in shares.items()}


def _rack(told: MemberSubscription) -> str | None:
    # What cannot be read names no rack: it is another member's data, and no reason to fail the group.
    return told.rack or (told.user_data or b"").decode(errors="ignore") or None


def _by_racks(
    cluster: Cluster, heap: Iterable[Partition], known: frozenset[str]
) -> dict[frozenset[str], deque[Partition]]:
    """Partitions that are near to the same members, each kind in order."""
    kinds: dict[frozenset[str], deque[Partition]] = defaultdict(deque)
    for topic, number in heap:
        racks = cluster.racks.get(topic, ())
        kinds[known & frozenset(racks[number] if number < len(racks) else ())].append((topic, number))
    return kinds


def _share_out(
    kinds: Mapping[frozenset[str], deque[Partition]],
    racks: Mapping[str, str | None],
    shares: Mapping[str, list[Partition]],
) -> None:
    """Into `shares`: first what is near, as much as balance allows, then the rest to whoever has room."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for member, rack in racks.items():
        if rack is not None:
            neighbours[rack].append(member)
    each, one_more = divmod(sum(map(len, kinds.values())), len(racks))
    sent = most_through(_network(kinds, neighbours, each, one_more), _PARTITIONS, _MEMBERS)
    larger: set[str] = set()
    for rack, members in neighbours.items():
        larger.update(_least_first(members, shares)[: sent[("rack", rack), _ONE_MORE]])
    others = [member for member in racks if member not in larger]
    larger.update(_least_first(others, shares)[: one_more - len(larger)])
    room = {member: each + (member in larger) for member in racks}
    for rack, members in neighbours.items():
        near = [
            kind.popleft()
            for where, kind in kinds.items()
            if rack in where
            for _ in range(sent[("near", where), ("rack", rack)])
        ]
        _deal(near, members, room, shares)
    _deal([partition for kind in kinds.values() for partition in kind], list(racks), room, shares)


def _network(
    kinds: Mapping[frozenset[str], Sequence[Partition]],
    neighbours: Mapping[str, Sequence[str]],
    each: int,
    one_more: int,
) -> dict[tuple[_Node, _Node], int]:
    """From partitions to the members of a rack: as much as is everybody's, and one more for as many as may have it."""
    edges: dict[tuple[_Node, _Node], int] = {(_ONE_MORE, _MEMBERS): one_more}
    for rack, members in neighbours.items():
        edges[("rack", rack), _MEMBERS] = each * len(members)
        edges[("rack", rack), _ONE_MORE] = min(one_more, len(members))
    for where, kind in kinds.items():
        edges[_PARTITIONS, ("near", where)] = len(kind)
        edges |= {(("near", where), ("rack", rack)): len(kind) for rack in sorted(where)}
    return edges


def _least_first(members: Iterable[str], shares: Mapping[str, list[Partition]]) -> list[str]:
    return sorted(members, key=lambda member: len(shares[member]))


def _deal(
    partitions: Sequence[Partition], members: Sequence[str], room: dict[str, int], shares: Mapping[str, list[Partition]]
) -> None:
    around = deque(member for member in members if room[member])
    for partition in partitions:
        member = around.popleft()
        shares[member].append(partition)
        room[member] -= 1
        if room[member]:
            around.append(member)


def _by_topic(share: Iterable[Partition]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(share):
        numbers[topic].append(number)
    return dict(numbers)
