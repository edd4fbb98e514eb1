"""The maximum flow through a network."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def max_flow(edges: Mapping[tuple[Node, Node], int], source: Node, sink: Node) -> dict[tuple[Node, Node], int]:
    """The flow over each edge, so that the total is as large as possible and no capacity is exceeded."""
    room: dict[Node, dict[Node, int]] = {}
    for (start, end), capacity in edges.items():
        room.setdefault(start, {})[end] = capacity
        room.setdefault(end, {}).setdefault(start, 0)  # the residual edge
    while path := _shortest_path(room, source, sink):
        amount = min(room[start][end] for start, end in path)
        for start, end in path:
            room[start][end] -= amount
            room[end][start] += amount
    return {(start, end): capacity - room[start][end] for (start, end), capacity in edges.items()}


def _shortest_path(room: Mapping[Node, Mapping[Node, int]], source: Node, sink: Node) -> list[tuple[Node, Node]]:
    came_from: dict[Node, Node] = {}
    waiting = deque([source])
    while waiting:
        node = waiting.popleft()
        for further, left in room.get(node, {}).items():
            if left and further not in came_from and further != source:
                came_from[further] = node
                waiting.append(further)
    path = []
    node = sink
    while node in came_from:
        path.append((came_from[node], node))
        node = came_from[node]
    return path
