"""Pipelines that stay right when partitions move: what they keep belongs to the partition, not to the query.

`query` is the streaming query around each of them, and `due` its one rule. What is kept of a partition is entered in
`entries` on a `disk`.
"""

from holdfast.spark.pipelines.enrich.query import Enrich
from holdfast.spark.pipelines.enrich.reading import read_totals
from holdfast.spark.pipelines.forensics.job import forensics
from holdfast.spark.pipelines.forensics.rules import Rules as ForensicsRules
from holdfast.spark.pipelines.land.compaction import compact
from holdfast.spark.pipelines.land.query import Land
from holdfast.spark.pipelines.land.reading import read_landed

__all__ = ["Enrich", "ForensicsRules", "Land", "compact", "forensics", "read_landed", "read_totals"]
