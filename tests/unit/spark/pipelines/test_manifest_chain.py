"""The rules of a chain: each entry begins where the one before it ends."""

import pytest

from holdfast.spark.pipelines.land.manifest import DataFile, Snapshot
from holdfast.spark.pipelines.land.manifest_chain import BrokenChain, build_chain
from tests.unit.spark.pipelines.land_harness import TOPIC, entry

TOPIC_PARTITION = (TOPIC, 0)
FILE = DataFile("topic=numbers/a.parquet", "2026-11-16", 0, 5, 5, 100)


def test_entries_follow_each_other() -> None:
    chain = build_chain(TOPIC_PARTITION, 0, None, [entry(5, 7, is_lost=True), entry(0, 5, FILE), entry(7, 9)])

    assert (chain.first, chain.end, chain.files, chain.lost, chain.entries) == (0, 9, (FILE,), ((5, 7),), 3)


def test_a_snapshot_replaces_the_entries_before_its_end() -> None:
    snapshot = Snapshot(*TOPIC_PARTITION, 3, 0, 5, (FILE,), ((1, 2),))

    chain = build_chain(TOPIC_PARTITION, 0, snapshot, [entry(5, 9)])

    assert (chain.first, chain.end, chain.files, chain.lost) == (0, 9, (FILE,), ((1, 2),))
    assert (chain.generation, chain.entries) == (3, 1)


@pytest.mark.parametrize("second", [(4, 9), (6, 9)])
def test_a_chain_with_a_gap_or_an_overlap_is_one_clear_error(second: tuple[int, int]) -> None:
    with pytest.raises(BrokenChain, match=rf"numbers-0 ends at 5, and its next entry begins at {second[0]}"):
        build_chain(TOPIC_PARTITION, 0, None, [entry(0, 5), entry(*second)])
