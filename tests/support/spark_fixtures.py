"""A real Spark for the tests that need one; a pytest plugin module."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fixtures import missing
from tests.support.kafka_distribution import KafkaUnavailable, run_script


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark session on the Java that scripts/java-ensure finds. Any: pyspark is an optional extra."""
    try:
        from pyspark.sql import SparkSession

        from tests.support.spark_apps import spark_home_of_the_run
    except ImportError:
        missing("needs Spark: install the extra `spark`")
    try:
        java = Path(run_script("java-ensure"))
    except KafkaUnavailable as unavailable:
        missing(f"needs Spark: {unavailable}")
    os.environ["JAVA_HOME"] = str(java.parent.parent)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(spark_home_of_the_run())
    session = (
        SparkSession.builder.master("local[2]")
        .appName("holdfast-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()
