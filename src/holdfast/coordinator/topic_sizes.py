"""How many partitions topics have, and how many a member may think that they have.

The sizes are the broker's own and are asked for whenever they matter. What grew is remembered for as long as this
process lives: a member that was there before may still work from what it knew then. After a restart nobody does: whose
connection breaks asks for the topics anew before it joins.
"""

from __future__ import annotations

from collections.abc import Callable

SizeOf = Callable[[str], int]
"""The number of partitions of a topic, 0 if there is no such topic."""


class TopicSizes:
    def __init__(self, size_of: SizeOf) -> None:
        self.size_of = size_of
        self._growths: dict[str, list[tuple[int, int]]] = {}
        """When each topic grew, and how many partitions it had until then; in order."""

    def grew(self, topic: str, before: int, now_ms: int) -> None:
        growths = self._growths.setdefault(topic, [])
        if growths and growths[-1][1] == before:
            del growths[-1]  # whoever knew less than before the one knows less than before the other
        growths.append((now_ms, before))

    def deleted(self, topic: str) -> None:
        self._growths.pop(topic, None)

    def surely_known(self, topic: str, since_ms: int) -> int:
        """How many partitions somebody knows of, at the least, who has been here since then."""
        unheard = (before for grew_ms, before in self._growths.get(topic, ()) if grew_ms >= since_ms)
        return next(unheard, self.size_of(topic))
