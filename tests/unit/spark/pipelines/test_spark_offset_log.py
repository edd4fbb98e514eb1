"""What a batch was planned to read, from Spark's checkpoint."""

from pathlib import Path

import pytest

from holdfast.client.errors import ConfigError
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.spark_offset_log import last_planned_batch, planned_batch

BATCH = 'v1\n{"batchWatermarkMs":0}\n{"t": {"0": [0, 500], "1": [3, 3]}, "": {"t": 2}}'


def checkpoint(directory: Path, **batches: str) -> Path:
    (directory / "offsets").mkdir()
    for name, content in batches.items():
        (directory / "offsets" / name.strip("_")).write_text(content)
    return directory


def test_the_ranges_of_a_batch(tmp_path: Path) -> None:
    checkpoint(tmp_path, _7=BATCH)

    assert planned_batch(tmp_path, 7).offset_ranges == [OffsetRange("t", 0, 0, 500), OffsetRange("t", 1, 3, 3)]


def test_the_last_batch_that_was_begun(tmp_path: Path) -> None:
    assert last_planned_batch(tmp_path) == -1

    checkpoint(tmp_path, _9=BATCH, _10=BATCH)
    (tmp_path / "offsets" / ".10.crc").write_text("")

    assert last_planned_batch(tmp_path) == 10


@pytest.mark.parametrize("content", ["v2\n{}\n{}", "v1\n{}\n{}\n{}", "v1\n{}", 'v1\n{}\n{"t": {"0": 5}}'])
def test_the_checkpoint_of_another_query_is_refused(tmp_path: Path, content: str) -> None:
    checkpoint(tmp_path, _0=content)

    with pytest.raises(ConfigError, match="checkpoint"):
        planned_batch(tmp_path, 0)
