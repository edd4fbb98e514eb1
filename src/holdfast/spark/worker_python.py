"""Which Python Spark runs the source with, in an application that was started without its environment activated.

Spark starts its Python processes with `python3` from PATH, unless PYSPARK_PYTHON or PYSPARK_DRIVER_PYTHON names
another. If the application was started by the path of its Python (`/path/to/venv/bin/python app.py`), that is the
Python of the system. It does not have Holdfast, so Spark does not find `format("holdfast")`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

from holdfast.spark.runner_process import is_started_by_spark

PYTHON: Final = "PYSPARK_PYTHON"
MODULE: Final = "pyspark_holdfast"
"""The module that Spark looks for."""
_TIMEOUT_S: Final = 10.0
_LEFT_ALONE: Final = (
    PYTHON,
    "PYSPARK_DRIVER_PYTHON",
    # Set by spark-submit, whose settings name the Python. The workers may be on other machines, with other paths.
    "PYSPARK_GATEWAY_PORT",
)


def use_this_python(environment: MutableMapping[str, str], executable: str, *, spark_is_running: bool) -> bool:
    """Makes Spark use the Python of this process, if it would use one without Holdfast. Returns whether it did.

    A `python3` that has Holdfast is left alone. On a cluster, each worker then uses the `python3` of its own PATH.
    """
    if any(environment.get(name) for name in _LEFT_ALONE) or not executable:
        return False
    found = shutil.which("python3", path=environment.get("PATH"))
    if found is not None and (Path(found).parent == Path(executable).parent or _has_holdfast(found, environment)):
        return False
    if spark_is_running:
        warnings.warn(
            f"Spark was started before holdfast.spark was imported, with the Python {found}, which does not have "
            f"Holdfast: import holdfast.spark first, or set {PYTHON}",
            stacklevel=4,
        )
        return False
    environment[PYTHON] = executable
    return True


def use_this_python_in_driver() -> None:
    """Called when `holdfast.spark` is imported. Has no effect in the processes that Spark started."""
    if is_started_by_spark():
        return
    context = sys.modules.get("pyspark.core.context")
    is_running = context is not None and context.SparkContext._active_spark_context is not None
    use_this_python(os.environ, sys.executable, spark_is_running=is_running)


def _has_holdfast(python: str, environment: Mapping[str, str]) -> bool:
    command = [python, "-c", f"import sys, importlib.util as found; sys.exit(found.find_spec({MODULE!r}) is None)"]
    try:
        done = subprocess.run(  # noqa: S603 - the program is the one that Spark would start
            command, env=dict(environment), timeout=_TIMEOUT_S, capture_output=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
