"""Spark queries that are members of a consumer group: `format("holdfast")`, as source and as sink.

`source` is the front door. On the driver, `stream_reader` is what Spark calls, `query` the running query behind it, and
`seats` its membership; on the executors, `fetching` reads the ranges that were planned and `producing` writes.
`pipelines` are whole queries on top of that; `starting` is for applications with several queries.
"""

from typing import Any

from holdfast.extras import SPARK, needed_for
from holdfast.spark.starting import await_begin

_PIPELINES = ("Enrich", "ForensicsRules", "Land", "compact", "forensics", "read_landed", "read_totals")

__all__ = [
    "Enrich",
    "ForensicsRules",
    "Land",
    "await_begin",
    "compact",
    "forensics",
    "read_landed",
    "read_totals",
]


def __getattr__(name: str) -> Any:
    # Only when it is asked for: every task on every executor imports this package.
    if name in _PIPELINES:
        with needed_for(f"holdfast.spark.{name}", SPARK):
            from holdfast.spark import pipelines

        return getattr(pipelines, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
