"""Spark applications as processes of their own, for tests that need another Spark than the session they share."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from examples.demo.spark_home import make_spark_home
from tests.support.fixtures import missing
from tests.support.kafka_distribution import REPOSITORY, KafkaUnavailable, run_script

APPS: Final = REPOSITORY / "tests" / "spark" / "applications"
QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}
"""On the loopback alone, and small."""

_NOT_INHERITED: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "SPARK_HOME")
"""What another test, or the shell, may have set for another Spark."""


def spark_environment(python: Path, **more: str) -> dict[str, str]:
    """The environment of a Spark whose `python3` is this one. The Spark of another Python is as pip has brought it."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    if python == Path(sys.executable):
        environment["SPARK_HOME"] = str(spark_home_of_the_run())
    environment["JAVA_HOME"] = str(_java().parent.parent)
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment.get('PATH', '')}"
    return environment | more


def spark_home_of_the_run() -> Path:
    """Where the Spark of this Python is ready sooner; the directory goes with this process."""
    return Path(_home().name) / "spark"


def run_app(
    name: str,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    python: Path | None = None,
    within_s: float = 200,
) -> Any:
    """Runs tests/spark/applications/`name` with `options`; returns what it wrote to its file `said`, from JSON."""
    executable = python or Path(sys.executable)
    said = Path(options["directory"]) / "said.json"
    done = subprocess.run(
        [executable, APPS / name, json.dumps({**options, "said": str(said), "settings": QUIET})],
        env=spark_environment(executable, PYSPARK_PYTHON=str(executable), **environment),
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, _end_of([done.stdout, done.stderr])
    return json.loads(said.read_text())


def ensured(script: str, what: str) -> Path:
    """The path that a script of the repository prints; a test that needs it is skipped, or fails in CI, without it."""
    try:
        return Path(run_script(script))
    except KafkaUnavailable as unavailable:
        missing(f"needs {what}: {unavailable}")


@functools.cache
def _home() -> tempfile.TemporaryDirectory[str]:
    directory = tempfile.TemporaryDirectory(prefix="spark-home-")
    make_spark_home(Path(directory.name) / "spark")
    return directory


def _java() -> Path:
    return ensured("java-ensure", "Spark")


def _end_of(texts: Sequence[str], lines: int = 60) -> str:
    return "\n".join("\n".join(text.splitlines()[-lines:]) for text in texts)
