"""The same source and sink through Spark Connect: the query runs in the server, not where the user's Python is."""

from pathlib import Path

import pytest

from tests.spark.end_to_end import assert_reads_and_writes
from tests.support.holdfast_broker import HoldfastBroker

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_reads_and_writes_through_spark_connect(quick_holdfast: HoldfastBroker, tmp_path: Path) -> None:
    # SPARK_TESTING: the server listens on any free port, instead of one that is always the same.
    said = assert_reads_and_writes(quick_holdfast, tmp_path, connect=True, SPARK_TESTING="1")

    assert said["session"] == "pyspark.sql.connect.session"
