"""Several queries in one application: the second is started when the first has begun.

Spark 4.3 has one map for the environment of a Python source's processes, which all queries of an application write into
when they begin. If two of the first do so at the same time, the map is broken for good: from then on every query fails
("Task not serializable: Illegal size of collection"). Once one has begun, the others are safe: they only write again
what is there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 0.05
BEGINNING: Final = "Initializing"
"""What Spark says of a query first, until its sources are there."""


def await_begin(query: StreamingQuery, timeout_s: float = 60.0) -> bool:
    """Until the query has its sources, or has ended; False if it has not within that time."""
    deadline = time.monotonic() + timeout_s
    while query.isActive and query.status["message"].startswith(BEGINNING):
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_S)
    return True
