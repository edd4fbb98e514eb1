"""Offset and time index: look-ups against a plain list, and the files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.index import OffsetIndex, TimeIndex

BASE = 1000

steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=40)


def entries_of(plan: list[tuple[int, int]]) -> list[tuple[int, int]]:
    offset, position, entries = BASE, 0, []
    for offset_step, position_step in plan:
        offset, position = offset + offset_step, position + position_step
        entries.append((offset, position))
    return entries


@pytest.mark.parametrize("from_file", [False, True])
@given(plan=steps, probe=st.integers(BASE, BASE + 2000), position=st.integers(0, 200_000))
def test_the_offset_index_agrees_with_a_list(
    tmp_path_factory: pytest.TempPathFactory,
    from_file: bool,
    plan: list[tuple[int, int]],
    probe: int,
    position: int,
) -> None:
    path = tmp_path_factory.mktemp("index") / "index"
    index = OffsetIndex(path, BASE, is_new=True)
    entries = entries_of(plan)
    for entry in entries:
        index.append(*entry)
    if from_file:
        index.write()
        index = OffsetIndex(path, BASE)

    assert index.last == (entries[-1] if entries else None)
    below = [entry for entry in entries if entry[0] < probe]
    above = [entry for entry in entries if entry[0] >= probe]
    assert index.around(probe) == (below[-1] if below else None, above[0] if above else None)
    starts = [entry[1] for entry in entries if entry[1] <= position]
    assert index.last_position_up_to(position) == (starts[-1] if starts else 0)


@pytest.mark.parametrize("from_file", [False, True])
@given(times=st.lists(st.integers(-1, 100), max_size=40), probe=st.integers(-1, 101))
def test_the_time_index_agrees_with_a_list(
    tmp_path_factory: pytest.TempPathFactory, from_file: bool, times: list[int], probe: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "timeindex"
    index = TimeIndex(path, BASE, is_new=True)
    entries: list[tuple[int, int]] = []
    for number, timestamp in enumerate(times):
        index.append(timestamp, BASE + 10 * number)
        if timestamp > max([-1, *times[:number]]):
            entries.append((timestamp, BASE + 10 * number))
    if from_file:
        index.write()
        index = TimeIndex(path, BASE)

    # An entry of timestamp 0 at relative offset 0 is nothing but zeroes, like space that Kafka preallocates.
    if not (from_file and entries == [(0, BASE)]):
        assert index.last == (entries[-1] if entries else None)
    older = [entry for entry in entries if entry[0] < probe]
    # So it must not be what is found here, either.
    if not (from_file and entries == [(0, BASE)]):
        assert index.last_before(probe) == (older[-1] if older else None)


def test_space_that_kafka_preallocated_is_not_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "index"
    index = OffsetIndex(path, BASE, is_new=True)
    for number in range(1, 4):
        index.append(BASE + number, number * 100)
    index.write()
    path.write_bytes(path.read_bytes() + bytes(10_000_000 // 8 * 8))

    index = OffsetIndex(path, BASE)

    assert index.last == (BASE + 3, 300)
    assert index.around(BASE + 100) == ((BASE + 3, 300), None)


def test_an_index_that_has_not_changed_is_not_written(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "index", BASE, is_new=True)
    index.write()
    (tmp_path / "index").unlink()

    index.write()
    assert not (tmp_path / "index").exists()
    index.append(BASE, 0)
    index.write()
    assert (tmp_path / "index").stat().st_size == 8
