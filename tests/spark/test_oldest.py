"""The oldest Spark that pyproject.toml promises."""

import re
from pathlib import Path

import pytest

from tests.spark.end_to_end import assert_reads_and_writes
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_distribution import REPOSITORY
from tests.support.spark_apps import ensured

# A cold cache has PySpark itself to bring.
pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def test_reads_and_writes_in_the_oldest_spark(quick_kafka: ApacheKafka, tmp_path: Path) -> None:
    python = ensured("spark-oldest-ensure", "the oldest PySpark")

    said = assert_reads_and_writes(quick_kafka, tmp_path, python)

    promised = re.search(r'"pyspark>=([\d.]+)"', (REPOSITORY / "pyproject.toml").read_text())
    assert promised is not None
    assert said["version"].startswith(f"{promised[1]}.")
