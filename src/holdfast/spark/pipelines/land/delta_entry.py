"""An entry of a Delta table's log: what a batch adds, and what a writer must know of the entries of others.

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
class Append:
    """The files of a batch, and the new end of each of its partitions."""

    files: Sequence[DataFile]
    ends: Mapping[TopicPartition, int]
    lost: Sequence[OffsetRange]
    """Ranges that were deleted before they could be read, and that the user chose to leave out."""
    writer: str
    """Different for each run of a query."""
    at_ms: int


def encode(append: Append, attempt: str) -> bytes:
    """`attempt` is unique, so that the writer recognizes its own entry."""
    lines: list[dict[str, Any]] = [{"commitInfo": _commit_info(append, attempt)}]
    lines += [
        {"txn": {"appId": application_id(where), "version": end, "lastUpdated": append.at_ms}}
        for where, end in sorted(append.ends.items())
    ]
    lines += [{"add": _add(file, append.at_ms)} for file in append.files]
    return b"".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for line in lines)


def _commit_info(append: Append, attempt: str) -> dict[str, Any]:
    info: dict[str, Any] = {
        "timestamp": append.at_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(PARTITION_COLUMNS)},
        "isBlindAppend": True,
        "engineInfo": f"holdfast/{VERSION}",
        "txnId": attempt,
        "writer": append.writer,
    }
    if append.lost:
        info["lost"] = [list(one) for one in append.lost]
    return info


def _add(file: DataFile, at_ms: int) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": file.partition_values,
        "size": file.size_bytes,
        "modificationTime": at_ms,
        "dataChange": True,
        "stats": file.stats,
    }


@dataclass(frozen=True, slots=True)
class Seen:
    """The part of an entry that concerns a writer that only appends."""

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    changes_table: bool = False
    """Whether the columns, the properties or the features of the table have changed."""


def decode(content: bytes, shown: str) -> Seen:
    """Raises Damaged, which names the entry as `shown`."""
    ends: dict[TopicPartition, int] = {}
    changes_table = False
    try:
        for line in content.splitlines():
            if not line.strip():
                continue
            action = json.loads(line)
            if "txn" in action and str(action["txn"]["appId"]).startswith(_APPLICATION):
                topic, _, partition = str(action["txn"]["appId"]).removeprefix(_APPLICATION).rpartition("/")
                ends[topic, int(partition)] = int(action["txn"]["version"])
            changes_table |= "protocol" in action or "metaData" in action
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(
            f"{shown} is no entry of a Delta log ({error}): it was changed after it was written. Restore it from a "
            "backup; nothing was changed"
        ) from error
    return Seen(ends, changes_table)
