"""What counts as a moved partition: what a member had and has no longer, however many owners a partition has."""

from __future__ import annotations

import pytest

from holdfast.coordinator.moves import moved_partitions
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT, Assignment, TopicPartitions, encode_assignment

Shares = dict[str, set[int]]


def written(shares: Shares) -> dict[str, bytes]:
    return {
        member: encode_assignment(Assignment([TopicPartitions("t", sorted(numbers))])) if numbers else EMPTY_ASSIGNMENT
        for member, numbers in shares.items()
    }


def moved(before: Shares, after: Shares) -> int | None:
    return moved_partitions(written(before), written(after))


@pytest.mark.parametrize(
    ("what", "before", "after", "expected"),
    [
        ("nothing changed", {"a": {0, 1}, "b": {2}}, {"a": {0, 1}, "b": {2}}, 0),
        ("two handed over", {"a": {0, 1, 2}, "b": {3}}, {"a": {0}, "b": {1, 2, 3}}, 2),
        ("two swapped", {"a": {0}, "b": {1}}, {"a": {1}, "b": {0}}, 2),
        ("a newcomer gets one", {"a": {0, 1}}, {"a": {0}, "b": {1}}, 1),
        ("partitions added", {"a": {0}, "b": {1}}, {"a": {0, 2}, "b": {1, 3}}, 0),
        ("of one that is gone", {}, {"a": {0, 1}}, 0),
    ],
)
def test_partitions_with_one_owner(what: str, before: Shares, after: Shares, expected: int) -> None:
    assert moved(before, after) == expected, what


@pytest.mark.parametrize(
    ("what", "before", "after", "expected"),
    [
        ("nothing changed", {"a": {0, 1}, "b": {0, 1}}, {"a": {0, 1}, "b": {0, 1}}, 0),
        ("the same, told the other way round", {"a": {0, 1}, "b": {0, 1}}, {"b": {0, 1}, "a": {0, 1}}, 0),
        ("one of two owners is another", {"a": {0}, "b": {0}, "c": set()}, {"a": {0}, "b": set(), "c": {0}}, 1),
        ("both owners are others", {"a": {0}, "b": {0}}, {"a": set(), "b": set(), "c": {0}, "d": {0}}, 1),
        ("a second owner", {"a": {0}, "b": set()}, {"a": {0}, "b": {0}}, 0),
        ("a third member", {"a": {0, 1, 2}, "b": {0, 1, 2}}, {"a": {0, 1}, "b": {0, 2}, "c": {1, 2}}, 2),
    ],
)
def test_partitions_with_several_owners(what: str, before: Shares, after: Shares, expected: int) -> None:
    """A partition counts once, whichever of its owners is another."""
    assert moved(before, after) == expected, what


def test_kip_429_a_cooperative_hand_over_counts_in_the_generation_that_revokes_and_not_again() -> None:
    before, between, after = {"a": {0, 1}, "b": set[int]()}, {"a": {0}, "b": set[int]()}, {"a": {0}, "b": {1}}

    assert [moved(before, between), moved(between, after)] == [1, 0]


def test_members_that_were_given_no_bytes_have_nothing() -> None:
    assert moved_partitions({"a": b""}, {"a": b""}) == 0


@pytest.mark.parametrize("which", ["before", "after"])
def test_bytes_of_another_protocol_are_not_counted(which: str) -> None:
    good, bad = written({"a": {0}}), {"a": b"\x00\x01\xff"}

    assert moved_partitions(*((bad, good) if which == "before" else (good, bad))) is None
