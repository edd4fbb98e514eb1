"""Partitions as numbers: to the reader a dictionary of lists, and safe against what members claim."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.assignors.partition_index import IndexedPartitions, PartitionIndex

COUNTS = {"b": 3, "a": 2, "c": 1}


def test_numbers_go_by_topic_in_java_order_and_then_by_partition() -> None:
    numbering = PartitionIndex({"\U0001f600": 1, "\uffee": 1, "a": 2})
    # A surrogate comes before U+FFEE in UTF-16.
    assert numbering.topics == ["a", "\U0001f600", "\uffee"]
    assert numbering.partition_in_topic().tolist() == [0, 1, 0, 0]
    assert numbering.topic_places().tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("owned", [{}, {"a": [0]}, {"a": [0, 1], "c": [0]}, {"a": [1], "b": [0, 2], "c": [0]}])
def test_they_read_as_a_dictionary_of_lists(owned: dict[str, list[int]]) -> None:
    numbering = PartitionIndex(COUNTS)
    partitions = IndexedPartitions(numbering, numbering.numbers_of(owned))

    assert partitions == owned
    assert dict(partitions) == owned
    assert list(partitions.items()) == list(owned.items())
    assert len(partitions) == len(owned)
    assert {topic: partitions[topic] for topic in partitions} == owned
    assert repr(partitions) == repr(owned)


@pytest.mark.parametrize("topic", ["b", "unheard of"])
def test_a_topic_of_which_there_is_none_is_not_in_it(topic: str) -> None:
    numbering = PartitionIndex(COUNTS)
    partitions = IndexedPartitions(numbering, numbering.numbers_of({"a": [0]}))
    assert topic not in partitions
    with pytest.raises(KeyError):
        partitions[topic]


def test_what_does_not_exist_is_left_out() -> None:
    numbering = PartitionIndex(COUNTS)
    claimed = {"a": [-1, 1, 2, 2**31 - 1], "gone": [0, 1], "b": [], "c": [0, -(2**31)]}
    assert numbering.numbers_of(claimed).tolist() == [1, 5]


owned = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True).map(sorted)
)


@given(owned)
def test_numbers_of_an_earlier_assignment_are_understood_in_a_later_one(owned: dict[str, list[int]]) -> None:
    earlier, later = PartitionIndex(dict.fromkeys("abcd", 3)), PartitionIndex({"a": 1, "d": 3, "new": 4, "c": 2})
    given = IndexedPartitions(earlier, earlier.numbers_of({topic: owned[topic] for topic in sorted(owned)}))
    assert sorted(later.numbers_of(given)) == sorted(later.numbers_of(owned))
