"""The content of a table, read without Spark and without Holdfast's code."""

from __future__ import annotations

import re
from pathlib import Path

import obstore
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from holdfast.spark.pipelines.location import Location

Place = Path | Location


def opened(table: Place) -> DeltaTable | None:
    options = table.storage_options if isinstance(table, Location) else {}
    try:
        return DeltaTable(str(table), storage_options=dict(options) or None)
    except TableNotFoundError:
        return None


def listed(table: Place) -> set[str]:
    found = opened(table)
    return set() if found is None else set(found.get_add_actions(flatten=True)["path"].to_pylist())


def unlisted(table: Place) -> set[str]:
    """Parquet files that exist and are not in the table."""
    if isinstance(table, Path):
        there = {path.relative_to(table).as_posix() for path in table.glob("topic=*/date=*/*.parquet")}
    else:
        there = {one["path"] for page in obstore.list(table.store, "") for one in page}
    return {path for path in there if path.startswith("topic=")} - listed(table)


def landed_values(table: Place) -> list[tuple[int, int, str]]:
    """Partition, offset and value of every row."""
    found = opened(table)
    assert found is not None, f"{table} is no Delta table"
    read = found.to_pyarrow_table(columns=["partition", "offset", "value"])
    partitions, offsets, values = (read.column(name).to_pylist() for name in ("partition", "offset", "value"))
    return sorted(zip(partitions, offsets, (value.decode() for value in values), strict=True))


def ends(table: Place) -> dict[int, int]:
    """Up to where each partition of the table's one topic is landed."""
    found = opened(table)
    if found is None:
        return {}
    topics = {re.sub(r"^topic=([^/]*)/.*", r"\1", path) for path in listed(table)}
    versions = {
        partition: found.transaction_version(f"holdfast/{topic}/{partition}")
        for topic in topics
        for partition in range(20)
    }
    return {partition: version for partition, version in versions.items() if version is not None}
