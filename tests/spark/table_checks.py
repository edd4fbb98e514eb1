"""What a table holds, read without Spark: the files that its manifests list."""

from __future__ import annotations

from pathlib import Path

from pyarrow import parquet as pq

from holdfast.spark.pipelines.land.manifest_store import ManifestStore
from holdfast.spark.pipelines.land.table_reader import chains


def listed(table: Path) -> set[str]:
    return {file.path for chain in chains(ManifestStore(table)) for file in chain.files}


def unlisted(table: Path) -> set[str]:
    """Files that are there, and not in the table."""
    there = {path.relative_to(table).as_posix() for path in table.glob("topic=*/date=*/*.parquet")}
    return there - listed(table)


def landed_values(table: Path) -> list[tuple[int, int, str]]:
    """Partition, offset and value of every row."""
    rows: list[tuple[int, int, str]] = []
    for path in listed(table):
        read = pq.read_table(table / path, columns=["partition", "offset", "value"], partitioning=None)
        partitions, offsets, values = (read.column(name).to_pylist() for name in ("partition", "offset", "value"))
        rows += zip(partitions, offsets, (value.decode() for value in values), strict=True)
    return sorted(rows)


def ends(table: Path) -> dict[int, int]:
    """Up to where each partition is landed."""
    return {chain.where[1]: chain.end for chain in chains(ManifestStore(table))} if table.is_dir() else {}
