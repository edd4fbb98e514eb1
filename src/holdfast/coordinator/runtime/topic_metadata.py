"""How many partitions topics have, and how many a member may think that they have.

The counts are the broker's own and are looked up whenever they matter. Growth is remembered for as long as this process
lives: a member that joined before may still work from the count it knew then. After a restart no member does, because a
client whose connection breaks fetches the metadata again before it joins.
"""

from __future__ import annotations

from collections.abc import Callable

PartitionCountOf = Callable[[str], int]
"""The number of partitions of a topic, 0 if there is no such topic."""


class TopicMetadata:
    def __init__(self, partition_count: PartitionCountOf) -> None:
        self.partition_count = partition_count
        self._growths: dict[str, list[tuple[int, int]]] = {}
        """When each topic grew, and how many partitions it had until then; in order."""

    def grew(self, topic: str, before: int, now_ms: int) -> None:
        growths = self._growths.setdefault(topic, [])
        if growths and growths[-1][1] == before:
            del growths[-1]  # less than before the one is less than before the other
        growths.append((now_ms, before))

    def deleted(self, topic: str) -> None:
        self._growths.pop(topic, None)

    def partitions_known_since(self, topic: str, since_ms: int) -> int:
        """How many partitions a member that has been here since then knows of, at the least."""
        unknown = (before for grew_ms, before in self._growths.get(topic, ()) if grew_ms >= since_ms)
        return next(unknown, self.partition_count(topic))
