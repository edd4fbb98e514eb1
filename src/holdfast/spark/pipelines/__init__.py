"""Pipelines that stay correct when partitions move: their output belongs to the partition, not to the query.

`pipeline_query` is the streaming query around each of them, and `dedup` the rule that makes a repeated batch harmless.
The entries of a partition are `json_files`, created by `durable_files`.
"""

from holdfast.spark.pipelines.aggregate.aggregate_query import Aggregate
from holdfast.spark.pipelines.aggregate.totals_reader import read_totals
from holdfast.spark.pipelines.forensics.job import forensics
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds
from holdfast.spark.pipelines.land.land_query import Land
from holdfast.spark.pipelines.land.table_compaction import compact
from holdfast.spark.pipelines.land.table_reader import read_landed

__all__ = ["Aggregate", "ForensicsThresholds", "Land", "compact", "forensics", "read_landed", "read_totals"]
