"""The Spark session that a pipeline runs on."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from holdfast.cli.errors import CommandFailed
from holdfast.cli.parsing import name_and_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",  # the command reports errors in one sentence
}


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", metavar="URL", default="local[*]", help="the Spark master (default: local[*])")
    group.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=name_and_value,
        help="a Spark setting, e.g. spark.driver.memory=4g; may be repeated",
    )


@contextmanager
def session(options: argparse.Namespace) -> Iterator[SparkSession]:
    """The session is stopped at the end of the block."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would log every error too, with a stack trace
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise the workers use `python3` from PATH
    builder = SparkSession.builder.appName(options.prog.replace(" ", "-")).master(options.master)
    for name, value in {**_QUIET, **dict(options.conf)}.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except PySparkException as error:
        raise CommandFailed(
            f"Spark did not start ({str(error).splitlines()[0]}): it needs Java 17 or newer, in JAVA_HOME or PATH"
        ) from error
    try:
        yield spark
    finally:
        spark.stop()
