"""Of a batch that comes again, or overlaps what others have kept, only the rest is due."""

import pytest

from holdfast.spark.offsets import OffsetRange
from holdfast.spark.pipelines.due import Due, due

WHERE = ("numbers", 0)


def wanted(start: int, end: int) -> OffsetRange:
    return OffsetRange(*WHERE, start, end)


@pytest.mark.parametrize(
    ("end", "is_due"),
    [
        (10, Due(wanted(10, 20))),  # the batch goes on where what is kept ends
        (13, Due(wanted(13, 20))),  # part of it is there
        (20, Due(None)),  # all of it is
        (25, Due(None)),
        (7, Due(wanted(10, 20), lost=(7, 10))),  # records between are gone
    ],
)
def test_what_is_left_of_a_batch(end: int, is_due: Due) -> None:
    assert due(wanted(10, 20), end) == is_due
