"""One number for every partition of every topic, so that a million of them are an array and not a million objects.

Topics stand in Java's order of strings, the partitions of a topic in a row. What a member gets is the array of its
numbers; topic names and lists of partitions are made of them only when somebody reads them.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.ordering import in_java_order

Numbers = NDArray[np.int32]
"""Partitions by their number, or members by theirs."""

NOBODY: Final = -1


class Numbering:
    """The topics of one assignment and where the numbers of each begin."""

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
        self._places_here: Final[dict[Numbering, NDArray[np.int64]]] = {}

    def topic_places(self) -> Numbers:
        """Of every number the place of its topic."""
        return np.repeat(np.arange(len(self.topics), dtype=np.int32), self.counts)

    def partition_in_topic(self) -> Numbers:
        """Of every number the partition that it stands for."""
        return (np.arange(self.total) - np.repeat(self.starts, self.counts)).astype(np.int32)

    def numbers_of(self, owned: Mapping[str, Sequence[int]]) -> Numbers:
        """What a member claims, as numbers. What does not exist here is left out."""
        if isinstance(owned, NumberedPartitions):
            places = self.places_of(owned.numbering)[owned.places()]
            return self.numbers_at(places, [1] * len(places), owned.partitions())
        lengths = list(map(len, owned.values()))
        claimed = np.fromiter(chain.from_iterable(owned.values()), dtype=np.int64, count=sum(lengths))
        return self.numbers_at(np.array([self.place.get(topic, NOBODY) for topic in owned]), lengths, claimed)

    def places_of(self, other: Numbering) -> NDArray[np.int64]:
        """Where the topics of an earlier assignment stand in this one."""
        if other not in self._places_here:
            self._places_here[other] = np.array([self.place.get(topic, NOBODY) for topic in other.topics])
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


class NumberedPartitions(Mapping[str, Sequence[int]]):
    """Partitions by topic: a dictionary of lists to its reader, kept as ascending numbers of four bytes each."""

    __slots__ = ("numbering", "numbers")

    def __init__(self, numbering: Numbering, numbers: Numbers) -> None:
        self.numbering: Final = numbering
        self.numbers: Final = numbers

    def __getitem__(self, topic: str) -> Sequence[int]:
        place = self.numbering.place[topic]
        start = self.numbering.starts[place]
        first, end = np.searchsorted(self.numbers, (start, self.numbering.ends[place]))
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
        """Of every partition the place of its topic."""
        return np.searchsorted(self.numbering.ends, self.numbers, side="right")

    def partitions(self) -> NDArray[np.int64]:
        return self.numbers - self.numbering.starts[self.places()]

    def _lists(self) -> Iterable[tuple[str, list[int]]]:
        places = self.places()
        partitions: list[int] = (self.numbers - self.numbering.starts[places]).tolist()
        changes = np.diff(places, prepend=NOBODY, append=len(self.numbering.topics))
        firsts: list[int] = np.flatnonzero(changes).tolist()
        topics = self.numbering.topics
        for place, first, end in zip(places[firsts[:-1]].tolist(), firsts, firsts[1:], strict=False):
            yield topics[place], partitions[first:end]


class _ListsByTopic(ItemsView[str, Sequence[int]]):
    """All lists in one go: asking for each topic by itself would search for each."""

    _mapping: NumberedPartitions

    def __iter__(self) -> Iterator[tuple[str, Sequence[int]]]:
        return iter(self._mapping._lists())


class _Lists(ValuesView[Sequence[int]]):
    _mapping: NumberedPartitions

    def __iter__(self) -> Iterator[Sequence[int]]:
        return (numbers for _, numbers in self._mapping._lists())


def stable_order(keys: Numbers, beyond: int) -> NDArray[np.int64]:
    """The order that sorts keys from -1 up to ``beyond``. Numpy counts small numbers instead of comparing them."""
    small = beyond <= np.iinfo(np.int16).max
    return np.argsort(keys.astype(np.int16) if small else keys, kind="stable")
