"""Spark queries that are members of a consumer group: `format("holdfast")`, as source and as sink.

`source` is the entry point. On the driver, Spark calls `stream_reader`; `stream_planner` plans the batches of a running
query, and `group_members` are its members in the group. On the executors, `fetching` reads the planned ranges and
`producing` writes. `pipelines` are complete queries on top of that; `starting` is for applications with several
queries. Importing this package before Spark starts makes Spark use the Python of the application (`worker_python`).
"""

from typing import Any

from holdfast.extras import SPARK, needed_for
from holdfast.spark.starting import await_started
from holdfast.spark.worker_python import use_this_python_in_driver

_PIPELINES = ("Aggregate", "ForensicsThresholds", "Land", "compact", "forensics", "read_landed", "read_totals")

__all__ = [
    "Aggregate",
    "ForensicsThresholds",
    "Land",
    "await_started",
    "compact",
    "forensics",
    "read_landed",
    "read_totals",
]

use_this_python_in_driver()


def __getattr__(name: str) -> Any:
    # Imported on first use: every task on every executor imports this package.
    if name in _PIPELINES:
        with needed_for(f"holdfast.spark.{name}", SPARK):
            from holdfast.spark import pipelines

        return getattr(pipelines, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
