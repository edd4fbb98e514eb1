"""Several queries in one application: start the second one when the first one is running.

Spark 4.3 has one map for the environment of a Python source's processes, which all queries of an application write when
they start. If the first two queries write it at the same time, the map is damaged: from then on every query fails
("Task not serializable: Illegal size of collection"). After one query has started, the others are safe: they write the
same entries again. docs/upstream/spark-two-python-sources-at-once.md has the details.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_INTERVAL_S: Final = 0.05
INITIALIZING: Final = "Initializing"
"""Spark's status message of a query until its sources exist."""


def await_started(query: StreamingQuery, timeout_s: float = 60.0) -> bool:
    """Waits until the sources of the query exist or it has ended; False after the timeout."""
    deadline = time.monotonic() + timeout_s
    while query.isActive and query.status["message"].startswith(INITIALIZING):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True
