"""One number for every partition of every topic, so that a million partitions are one array and not a million objects.

Topics are in Java's string order, and the partitions of a topic are consecutive. An assignment is an array of numbers.
Topic names and lists of partitions are created only when they are read.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.java_order import in_java_order

Numbers = NDArray[np.int32]
"""Partitions by their number, or members by theirs."""

UNASSIGNED: Final = -1


class PartitionIndex:
    """The topics of one assignment and the first number of each."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.topics: Final = in_java_order(partitions)
        self.counts: Final = np.array([partitions[topic] for topic in self.topics], dtype=np.int64)
        self.ends: Final = np.cumsum(self.counts)
        self.starts: Final = self.ends - self.counts
        self.total: Final = int(self.counts.sum())
        self.place: Final = {topic: place for place, topic in enumerate(self.topics)}
        self.place_of_bytes: Final = {
            topic.encode("utf-8", "surrogatepass"): place for topic, place in self.place.items()
        }
        self._places_here: Final[dict[PartitionIndex, NDArray[np.int64]]] = {}

    def topic_places(self) -> Numbers:
        """The index of the topic of every number."""
        return np.repeat(np.arange(len(self.topics), dtype=np.int32), self.counts)

    def partition_in_topic(self) -> Numbers:
        """The partition within its topic, for every number."""
        return (np.arange(self.total) - np.repeat(self.starts, self.counts)).astype(np.int32)

    def numbers_of(self, owned: Mapping[str, Sequence[int]]) -> Numbers:
        """The claims of a member, as numbers. Partitions that do not exist are omitted."""
        if isinstance(owned, IndexedPartitions):
            places = self.places_of(owned.index)[owned.places()]
            return self.numbers_at(places, [1] * len(places), owned.partitions())
        lengths = list(map(len, owned.values()))
        claimed = np.fromiter(chain.from_iterable(owned.values()), dtype=np.int64, count=sum(lengths))
        return self.numbers_at(np.array([self.place.get(topic, UNASSIGNED) for topic in owned]), lengths, claimed)

    def places_of(self, other: PartitionIndex) -> NDArray[np.int64]:
        """The indexes of the topics of an earlier index in this one."""
        if other not in self._places_here:
            self._places_here[other] = np.array([self.place.get(topic, UNASSIGNED) for topic in other.topics])
        return self._places_here[other]

    def numbers_at(self, places: NDArray[np.int64], lengths: Sequence[int], claimed: NDArray[np.int64]) -> Numbers:
        """The numbers of claimed partitions: the first ``lengths[0]`` are of the topic at ``places[0]``, and so on."""
        if not len(claimed):
            return np.empty(0, dtype=np.int32)
        # An unknown topic is looked up as one more that has no partitions.
        starts = np.append(self.starts, 0)[places]
        counts = np.append(self.counts, 0)[places]
        if len(lengths) != len(claimed) or min(lengths) == 0:
            starts, counts = np.repeat(starts, lengths), np.repeat(counts, lengths)
        numbers: NDArray[np.int64] = starts + claimed
        exists = (claimed >= 0) & (claimed < counts)
        return (numbers if exists.all() else numbers[exists]).astype(np.int32)


class IndexedPartitions(Mapping[str, Sequence[int]]):
    """Partitions by topic: a mapping of lists, stored as ascending numbers of four bytes each."""

    __slots__ = ("index", "numbers")

    def __init__(self, numbering: PartitionIndex, numbers: Numbers) -> None:
        self.index: Final = numbering
        self.numbers: Final = numbers

    def __getitem__(self, topic: str) -> Sequence[int]:
        place = self.index.place[topic]
        start = self.index.starts[place]
        first, end = np.searchsorted(self.numbers, (start, self.index.ends[place]))
        if first == end:
            raise KeyError(topic)
        partitions: list[int] = (self.numbers[first:end] - start).tolist()
        return partitions

    def __iter__(self) -> Iterator[str]:
        return (topic for topic, _ in self._lists())

    def __len__(self) -> int:
        return len(np.unique(self.places()))

    def __repr__(self) -> str:
        return repr(dict(self.items()))

    def items(self) -> ItemsView[str, Sequence[int]]:
        return _ListsByTopic(self)

    def values(self) -> ValuesView[Sequence[int]]:
        return _Lists(self)

    def places(self) -> NDArray[np.int64]:
        """The index of the topic of every partition."""
        return np.searchsorted(self.index.ends, self.numbers, side="right")

    def partitions(self) -> NDArray[np.int64]:
        return self.numbers - self.index.starts[self.places()]

    def _lists(self) -> Iterable[tuple[str, list[int]]]:
        places = self.places()
        partitions: list[int] = (self.numbers - self.index.starts[places]).tolist()
        changes = np.diff(places, prepend=UNASSIGNED, append=len(self.index.topics))
        firsts: list[int] = np.flatnonzero(changes).tolist()
        topics = self.index.topics
        for place, first, end in zip(places[firsts[:-1]].tolist(), firsts, firsts[1:], strict=False):
            yield topics[place], partitions[first:end]


class _ListsByTopic(ItemsView[str, Sequence[int]]):
    """All lists in one pass, without a search for each topic."""

    _mapping: IndexedPartitions

    def __iter__(self) -> Iterator[tuple[str, Sequence[int]]]:
        return iter(self._mapping._lists())


class _Lists(ValuesView[Sequence[int]]):
    _mapping: IndexedPartitions

    def __iter__(self) -> Iterator[Sequence[int]]:
        return (numbers for _, numbers in self._mapping._lists())


def stable_order(keys: Numbers, beyond: int) -> NDArray[np.int64]:
    """The order that sorts keys from -1 up to ``beyond``. Numpy counts small numbers instead of comparing them."""
    small = beyond <= np.iinfo(np.int16).max
    return np.argsort(keys.astype(np.int16) if small else keys, kind="stable")
