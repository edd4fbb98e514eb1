"""An entry of a Delta table's log: what Holdfast writes, and what it must know of the entries of others.

The format is that of the Delta protocol (https://github.com/delta-io/delta/blob/master/PROTOCOL.md). Each partition of
a topic is an application with the id `holdfast/<topic>/<partition>`, and the version of its last transaction is the
offset up to which the partition is in the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.errors import Damaged
from holdfast.spark.pipelines.land.data_file import PARTITION_COLUMNS, DataFile
from holdfast.types import TopicPartition
from holdfast.version import VERSION

LOG: Final = "_delta_log"
_APPLICATION: Final = "holdfast/"
_DIGITS: Final = 20


def entry_name(version: int) -> str:
    return f"{LOG}/{version:0{_DIGITS}d}.json"


def application_id(where: TopicPartition) -> str:
    return f"{_APPLICATION}{where[0]}/{where[1]}"


@dataclass(frozen=True, slots=True)
class Entry:
    """Either a batch, which has the new end of each of its partitions, or an exchange of files by a compaction, which
    removes files and adds others with the same records."""

    added: Sequence[DataFile]
    writer: str
    """Different for each run of a query."""
    at_ms: int
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    lost: Sequence[OffsetRange] = ()
    """Ranges that were deleted before they could be read, and that the user chose to leave out."""
    removed: Sequence[DataFile] = ()

    @property
    def is_exchange(self) -> bool:
        return bool(self.removed)


def encode(entry: Entry, attempt: str) -> bytes:
    """`attempt` is unique, so that the writer recognizes its own entry."""
    lines: list[dict[str, Any]] = [{"commitInfo": _commit_info(entry, attempt)}]
    lines += [
        {"txn": {"appId": application_id(where), "version": end, "lastUpdated": entry.at_ms}}
        for where, end in sorted(entry.ends.items())
    ]
    lines += [{"remove": _remove(file, entry)} for file in entry.removed]
    lines += [{"add": _add(file, entry)} for file in entry.added]
    return b"".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for line in lines)


def _commit_info(entry: Entry, attempt: str) -> dict[str, Any]:
    parameters = {"partitionBy": json.dumps(PARTITION_COLUMNS)}
    info: dict[str, Any] = {
        "timestamp": entry.at_ms,
        "operation": "OPTIMIZE" if entry.is_exchange else "WRITE",
        "operationParameters": parameters if entry.is_exchange else {"mode": "Append", **parameters},
        "isBlindAppend": not entry.is_exchange,
        "engineInfo": f"holdfast/{VERSION}",
        "txnId": attempt,
        "writer": entry.writer,
    }
    if entry.lost:
        info["lost"] = [list(one) for one in entry.lost]
    return info


def _add(file: DataFile, entry: Entry) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": file.partition_values,
        "size": file.size_bytes,
        "modificationTime": entry.at_ms,
        "dataChange": not entry.is_exchange,
        "stats": file.stats,
    }


def _remove(file: DataFile, entry: Entry) -> dict[str, Any]:
    return {
        "path": file.path,
        "deletionTimestamp": entry.at_ms,
        "dataChange": not entry.is_exchange,
        "extendedFileMetadata": True,
        "partitionValues": file.partition_values,
        "size": file.size_bytes,
    }


@dataclass(frozen=True, slots=True)
class Seen:
    """The part of an entry that concerns other writers."""

    ends: Mapping[TopicPartition, int]
    removed: frozenset[str]
    """The paths of files that are not in the table any more."""
    changes_table: bool
    """Whether the columns, the properties or the features of the table have changed."""


def decode(content: bytes, shown: str) -> Seen:
    """Raises Damaged, which names the entry as `shown`."""
    ends: dict[TopicPartition, int] = {}
    removed: set[str] = set()
    changes_table = False
    try:
        for line in content.splitlines():
            if not line.strip():
                continue
            action = json.loads(line)
            if "txn" in action and str(action["txn"]["appId"]).startswith(_APPLICATION):
                topic, _, partition = str(action["txn"]["appId"]).removeprefix(_APPLICATION).rpartition("/")
                ends[topic, int(partition)] = int(action["txn"]["version"])
            if "remove" in action:
                removed.add(str(action["remove"]["path"]))
            changes_table |= "protocol" in action or "metaData" in action
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(
            f"{shown} is no entry of a Delta log ({error}): it was changed after it was written. Restore it from a "
            "backup; nothing was changed"
        ) from error
    return Seen(ends, frozenset(removed), changes_table)
