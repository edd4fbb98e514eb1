"""Windows that have been over for long enough are dropped.

The clock of a partition is its newest record: replaying an old topic drops what live reading would have dropped, and a
partition that is at rest keeps what it has. What is dropped is said in the version, so it stays dropped: a record that
comes too late brings back no window with a part of its total.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.pipelines.enrich.settings import Settings


def dropped_before(
    so_far_us: int | None, newest_us: int, keep_us: int | None, settings: Settings, now_us: int
) -> int | None:
    """Windows that begin before this are dropped; None: none are. `so_far_us` is what was before these records.

    A record from the future, of a producer whose clock is wrong, counts as one of now: it drops nothing early.
    """
    if keep_us is None or settings.window_us is None:
        return so_far_us
    over_us = min(newest_us, now_us) - keep_us
    before_us = over_us - over_us % settings.window_us
    return before_us if so_far_us is None else max(so_far_us, before_us)


def without_dropped(rows: pa.Table, before_us: int | None) -> pa.Table:
    return rows if before_us is None else rows.filter(pc.greater_equal(rows["window"], before_us)).combine_chunks()
