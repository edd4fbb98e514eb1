"""A data directory of very many partitions, made faster than a broker makes it. Their indexes are still to be built."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from holdfast.log import DataDirectory, checkpoint
from holdfast.log.partition_metadata import encode_topic_id
from tests.broker.wire_client import batch

PARTITIONS_OF_A_TOPIC = 1000
RECORD = b"the one record"


def make_data(path: Path, partition_count: int) -> list[tuple[str, int]]:
    """Every partition holds one record; the last broker stopped cleanly. Returns the partitions."""
    names = [f"many-{number:03d}" for number in range(partition_count // PARTITIONS_OF_A_TOPIC)]
    ids = {name: encode_topic_id(uuid.uuid4()) for name in names}
    keys = [(name, index) for name in names for index in range(PARTITIONS_OF_A_TOPIC)]
    DataDirectory.open(path, node_id=1).close({})
    topics = {name: {"id": ids[name], "partitions": PARTITIONS_OF_A_TOPIC, "configs": {}} for name in names}
    (path / "topics.json").write_text(json.dumps({"version": 1, "topics": topics}))
    data = batch(RECORD)
    for name, index in keys:
        directory = path / f"{name}-{index}"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(data)
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {ids[name]}")
    checkpoint.write_offsets(path / checkpoint.RECOVERY_POINTS, dict.fromkeys(keys, 1))
    return keys
