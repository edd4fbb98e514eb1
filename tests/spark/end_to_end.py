"""What must come out of apps/reads_and_writes.py, whatever Spark it is run with."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from tests.client_compat.servers import Server
from tests.groups.admins import ConfluentAdmin
from tests.spark.records import new_topic, produced, values_of
from tests.support.spark_apps import run_app

PARTITIONS = 2
COUNT = 2_000


def assert_reads_and_writes(server: Server, directory: Path, python: Path) -> dict[str, Any]:
    """Returns what the application said of its Spark."""
    # given a topic with records and two without
    topic = f"t-{uuid.uuid4().hex[:12]}"
    values = sorted(produced(server.bootstrap, topic, PARTITIONS, COUNT))
    copies = {"stream_copy": f"{topic}-stream", "batch_copy": f"{topic}-batch"}
    for copy in copies.values():
        new_topic(server.bootstrap, copy, PARTITIONS)
    group = f"g-{uuid.uuid4().hex[:12]}"

    # when the application reads the first and writes the others, as a stream and as a batch
    options = {"bootstrap": server.bootstrap, "topic": topic, "group": group, "instance": "copier-1", **copies}
    said: dict[str, Any] = run_app("reads_and_writes.py", {**options, "directory": str(directory)}, {}, python)

    # then every record came through each way once, and the group knows how far the stream has read
    assert said["columns"] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert sorted(said["values"]) == values
    assert sorted(values_of(server.bootstrap, copies["stream_copy"])) == values
    assert sorted(values_of(server.bootstrap, copies["batch_copy"])) == values
    whole = dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)
    assert ConfluentAdmin().offsets(server.bootstrap, group, topic) == whole
    return said
