"""Drops windows that ended long enough ago.

The clock of a partition is its newest record. Replaying an old topic therefore drops the same windows as live reading,
and an idle partition keeps its windows. The version records which windows were dropped, so a late record does not
create a window again with a part of its total.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.pipelines.aggregate.aggregate_settings import AggregateSettings


def dropped_before(
    so_far_us: int | None, newest_us: int, keep_us: int | None, settings: AggregateSettings, now_us: int
) -> int | None:
    """Windows that begin before this time are dropped; None: none are. `so_far_us` is the value before these records.

    A timestamp in the future, of a producer whose clock is wrong, counts as the current time: it drops nothing early.
    """
    if keep_us is None or settings.window_us is None:
        return so_far_us
    over_us = min(newest_us, now_us) - keep_us
    before_us = over_us - over_us % settings.window_us
    return before_us if so_far_us is None else max(so_far_us, before_us)


def without_dropped(rows: pa.Table, before_us: int | None) -> pa.Table:
    return rows if before_us is None else rows.filter(pc.greater_equal(rows["window"], before_us)).combine_chunks()
