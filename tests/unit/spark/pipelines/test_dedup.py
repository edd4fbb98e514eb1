"""Of a batch that comes again, or overlaps what others have kept, only the rest is due."""

import pytest

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.dedup import Remaining, remaining

TOPIC_PARTITION = ("numbers", 0)


def wanted(start: int, end: int) -> OffsetRange:
    return OffsetRange(*TOPIC_PARTITION, start, end)


@pytest.mark.parametrize(
    ("end", "is_due"),
    [
        (10, Remaining(wanted(10, 20))),  # the batch goes on where what is kept ends
        (13, Remaining(wanted(13, 20))),  # part of it is there
        (20, Remaining(None)),  # all of it is
        (25, Remaining(None)),
        (7, Remaining(wanted(10, 20), gap=(7, 10))),  # records between are gone
    ],
)
def test_what_is_left_of_a_batch(end: int, is_due: Remaining) -> None:
    assert remaining(wanted(10, 20), end) == is_due
