"""What the demo counts."""

from __future__ import annotations

from examples.demo.figures import DELAY_MS, Owned, Processed, RecordCounts, count_records, moves

LATE = DELAY_MS + 1
ALL = (0, 1_000_000)
OWNED = [Owned("a", 0, 0, 1_000_000), Owned("b", 1, 0, 1_000_000)]


def test_records_processed_once_and_in_time_are_neither_lost_nor_delayed() -> None:
    written = {0: [10, 20], 1: [10]}
    processed = [Processed("a", 0, 0, 2, 30), Processed("b", 1, 0, 1, 30)]
    assert count_records(written, processed, OWNED, {}, ALL) == RecordCounts(0, 0, 0, 0)


def test_unprocessed_records_are_lost() -> None:
    assert count_records({0: [10, 20, 30]}, [Processed("a", 0, 0, 2, 30)], OWNED, {}, ALL).lost == 1


def test_what_was_processed_again_is_duplicated() -> None:
    processed = [Processed("a", 0, 0, 2, 30), Processed("b", 0, 1, 3, 40)]
    assert count_records({0: [10, 20, 30]}, processed, OWNED, {}, ALL).duplicated == 1


def test_the_first_time_that_a_record_is_processed_counts() -> None:
    processed = [Processed("b", 0, 0, 1, 10 + LATE), Processed("a", 0, 0, 1, 30)]
    assert count_records({0: [10]}, processed, OWNED, {}, ALL).delayed == 0


def test_a_record_is_delayed_by_its_owners_restart_or_by_that_of_another() -> None:
    written = {0: [10], 1: [10]}
    processed = [Processed("a", 0, 0, 1, 10 + LATE), Processed("b", 1, 0, 1, 10 + LATE)]
    counted = count_records(written, processed, OWNED, {"a": [(5, 100)]}, ALL)
    assert (counted.delayed, counted.delayed_elsewhere) == (2, 1)


def test_what_was_written_outside_of_the_window_is_not_delayed() -> None:
    processed = [Processed("a", 0, 0, 1, 10 + LATE)]
    assert count_records({0: [10]}, processed, OWNED, {}, (11, 1_000_000)).delayed == 0
    assert count_records({0: [10]}, processed, OWNED, {}, (10, 1_000_000)).delayed == 1


def test_a_partition_that_comes_back_to_its_owner_has_not_moved() -> None:
    owned = [Owned("a", 0, 0, 10), Owned("a", 0, 12, 20), Owned("b", 1, 0, 10), Owned("a", 1, 12, 20)]
    assert moves(owned, 0, 20) == 1
    assert moves(owned, 12, 20) == 0, "before the window"
