"""The Delta table through delta-rs (the package deltalake): opens or creates it, and checks its columns and features.

delta-rs does not flush its files on a local disk. A commit of `delta_log` is flushed, but it depends on the entries
before it, so these are flushed when the table is opened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.durable_files import Disk
from holdfast.spark.pipelines.errors import Unwritable
from holdfast.spark.pipelines.land.data_file import PARTITION_COLUMNS
from holdfast.spark.pipelines.land.delta_entry import LOG, entry_name
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import one_line

CHECKPOINT_INTERVAL: Final = 100
"""Entries of the log between two checkpoints. A reader reads the last checkpoint and the entries after it."""
_LAST_CHECKPOINT: Final = "_last_checkpoint"
_OLD_FORMAT: Final = "_manifests"
_HEADER: Final = {
    "type": "struct",
    "fields": [
        {"name": "key", "type": "string", "nullable": True, "metadata": {}},
        {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
    ],
}
COLUMNS: Final[Mapping[str, Any]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "integer",
    "headers": {"type": "array", "elementType": _HEADER, "containsNull": True},
    "date": "date",
}
"""The columns of the table and their types in the Delta protocol, in the order of the source."""
_WRITABLE_FEATURES: Final = {"appendOnly", "deletionVectors", "domainMetadata", "invariants", "timestampNtz"} | {
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""Features that ask nothing of a writer that only adds files. Invariants of columns are checked separately."""
_MAX_WRITER_VERSION: Final = 2
_FEATURES_VERSION: Final = 7
"""From this version on, a table lists its features."""
_CONDITIONS: Final = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
_TRANSACTION_RETENTION: Final = "delta.setTransactionRetentionDuration"
_LISTING_ATTEMPTS: Final = 5
_LISTING_PAUSE_S: Final = 0.05
_GAP: Final = "Expected contiguous commit files"

T = TypeVar("T")


def schema() -> Schema:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def open_table(location: Location) -> DeltaTable | None:
    """None if it does not exist. Raises ConfigError if it is not a table that Holdfast can land into."""
    table = listing(location, lambda: _loaded_if_exists(location))
    if table is None:
        return None
    check_table(table, location)
    if location.is_local:
        flush_log(location.path)
    return table


def _loaded(location: Location) -> DeltaTable:
    return DeltaTable(location.url, storage_options=dict(location.storage_options) or None)


def _loaded_if_exists(location: Location) -> DeltaTable | None:
    try:
        return _loaded(location)
    except TableNotFoundError:
        return None


def existing_table(location: Location) -> DeltaTable:
    """Raises ConfigError if the table does not exist."""
    table = open_table(location)
    if table is None:
        raise ConfigError(f"{location}: there is no Delta table")
    return table


def create_table(location: Location) -> DeltaTable:
    """The table, which another writer may have created meanwhile."""
    if location.is_local and (location.path / _OLD_FORMAT).is_dir():
        raise ConfigError(
            f"{location} is a table of a development version of Holdfast, with manifests instead of a Delta log: land "
            "the topics into another path"
        )
    failure: Exception | None = None
    try:
        with delta_errors(location):
            DeltaTable.create(
                location.url,
                schema(),
                mode="ignore",
                partition_by=list(PARTITION_COLUMNS),
                name="Kafka records",
                configuration={"delta.checkpointInterval": str(CHECKPOINT_INTERVAL)},
                storage_options=dict(location.storage_options) or None,
            )
    except Unwritable as error:
        failure = error  # another writer may have been faster
    table = open_table(location)
    if table is None:
        raise failure or Unwritable(f"{location} was deleted while it was created; start the query again")
    return table


def write_checkpoint(location: Location) -> int:
    """Returns the version of the checkpoint."""
    table = listing(location, lambda: _loaded(location))
    listing(location, table.create_checkpoint)
    if location.is_local:
        flush_log(location.path)
    return table.version()


def check_table(table: DeltaTable, location: Location) -> None:
    """Raises ConfigError."""
    problem = _protocol_problem(table) or _property_problem(table) or _columns_problem(table)
    if problem is not None:
        raise ConfigError(f"the Delta table {location} {problem}; land the topics into another path")


def _protocol_problem(table: DeltaTable) -> str | None:
    protocol = table.protocol()
    if protocol.min_writer_version <= _MAX_WRITER_VERSION:
        return None
    if protocol.min_writer_version < _FEATURES_VERSION:
        return f"has the writer version {protocol.min_writer_version}, and Holdfast supports {_MAX_WRITER_VERSION}"
    foreign = sorted(set(protocol.writer_features or ()) - _WRITABLE_FEATURES)
    return f"has features that Holdfast does not support ({', '.join(foreign)})" if foreign else None


def _property_problem(table: DeltaTable) -> str | None:
    """The ends of the partitions are transactions. If one expires, its partition looks like a new one."""
    retention = table.metadata().configuration.get(_TRANSACTION_RETENTION)
    if retention is None:
        return None
    return (
        f"has the property {_TRANSACTION_RETENTION} ({retention}), by which the offsets up to which each partition is "
        "in the table expire, so that records would be landed twice"
    )


def _columns_problem(table: DeltaTable) -> str | None:
    found: Sequence[dict[str, Any]] = json.loads(table.schema().to_json())["fields"]
    by_name = {field["name"]: field for field in found}
    partitioned = table.metadata().partition_columns
    if partitioned != list(PARTITION_COLUMNS):
        return f"is partitioned by {', '.join(partitioned) or 'nothing'}, and not by {', '.join(PARTITION_COLUMNS)}"
    for name, kind in COLUMNS.items():
        if name not in by_name or _type_of(by_name[name]["type"]) != _type_of(kind):
            return f"has no column {name!r} of the type that a record has"
    for field in found:
        if field["name"] not in COLUMNS and not field["nullable"]:
            return f"has a column {field['name']!r} that a record does not have and that must not be null"
        if any(condition in field["metadata"] for condition in _CONDITIONS):
            return f"has a condition or a default for the column {field['name']!r}"
    return None


def _type_of(kind: Any) -> Any:
    """Without the fields' metadata, which engines add."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "array":
        return "array", _type_of(kind["elementType"])
    return "struct", [(field["name"], _type_of(field["type"])) for field in kind["fields"]]


def listing(location: Location, action: Callable[[], T]) -> T:
    """Calls a function of delta-rs that lists the files of the log. If a writer creates entries meanwhile, the list may
    lack one and have the next one, and delta-rs rejects the log; so the log is listed again. Raises Unwritable."""
    for _ in range(_LISTING_ATTEMPTS - 1):
        try:
            with delta_errors(location):
                return action()
        except Unwritable as error:
            if _GAP not in str(error):
                raise
        time.sleep(_LISTING_PAUSE_S)
    with delta_errors(location):
        return action()


@contextmanager
def delta_errors(location: Location) -> Iterator[None]:
    """Errors of delta-rs as Unwritable, in one line."""
    try:
        yield
    except (DeltaError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise Unwritable.because(str(location), error) from error
        raise Unwritable.because(str(location), OSError(None, one_line(str(error)))) from error


def flush_log(table: Path) -> None:
    """The entries since the last checkpoint, and the checkpoint."""
    log, disk = table / LOG, Disk()
    try:
        last = json.loads((log / _LAST_CHECKPOINT).read_bytes())["version"]
    except (FileNotFoundError, ValueError, KeyError):
        last = 0
    first = Path(entry_name(last)).stem
    for name in disk.names(log):
        if name == _LAST_CHECKPOINT or (first <= name and name.endswith((".json", ".parquet"))):
            disk.flush(log / name)
    for directory in (log, table, table.parent):
        disk.sync_directory(directory)
