"""Spark uses the application's Python if the one in PATH does not have Holdfast, and nobody has chosen another."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from holdfast.spark.worker_python import PYTHON, use_this_python

OURS = "/opt/app/bin/python"


@pytest.fixture
def system(tmp_path: Path) -> str:
    """A PATH whose `python3` does not have Holdfast."""
    return _path_with(tmp_path / "system", exit_code=1)


def _path_with(directory: Path, exit_code: int) -> str:
    """A PATH whose `python3` answers with this exit code."""
    directory.mkdir()
    python = directory / "python3"
    python.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    python.chmod(0o755)
    return str(directory)


@pytest.mark.parametrize("there_is_one", [True, False], ids=["another python3", "no python3"])
def test_a_python_without_holdfast_is_replaced(system: str, tmp_path: Path, there_is_one: bool) -> None:
    environment = {"PATH": system if there_is_one else str(tmp_path)}

    assert use_this_python(environment, OURS, spark_is_running=False)
    assert environment[PYTHON] == OURS


def test_a_python_with_holdfast_is_left_alone(tmp_path: Path) -> None:
    environment = {"PATH": _path_with(tmp_path / "other", exit_code=0)}

    assert not use_this_python(environment, OURS, spark_is_running=False)
    assert PYTHON not in environment


def test_an_activated_environment_is_left_alone_and_not_started(tmp_path: Path) -> None:
    environment = {"PATH": _path_with(tmp_path / "venv", exit_code=1)}

    assert not use_this_python(environment, str(tmp_path / "venv" / "python"), spark_is_running=False)
    assert PYTHON not in environment


@pytest.mark.parametrize("name", [PYTHON, "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"])
def test_a_python_that_the_user_or_spark_submit_has_chosen_is_kept(system: str, name: str) -> None:
    environment = {"PATH": system, name: "chosen"}

    assert not use_this_python(environment, OURS, spark_is_running=False)
    assert environment == {"PATH": system, name: "chosen"}


def test_an_import_after_the_start_of_spark_is_warned_about(system: str) -> None:
    environment = {"PATH": system}

    with pytest.warns(UserWarning, match="import holdfast.spark first, or set PYSPARK_PYTHON"):
        assert not use_this_python(environment, OURS, spark_is_running=True)
    assert PYTHON not in environment


def test_an_import_after_the_start_of_spark_is_fine_with_the_right_python(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use_this_python({"PATH": _path_with(tmp_path / "other", 0)}, OURS, spark_is_running=True)


@pytest.mark.parametrize(
    ("main", "expected"), [("application", sys.executable), ("pyspark.daemon", None)], ids=["driver", "worker"]
)
def test_the_import_acts_in_the_driver_only(system: str, main: str, expected: str | None) -> None:
    code = (
        "import os, sys, types\n"
        f"sys.modules['__main__'].__spec__ = types.SimpleNamespace(name={main!r})\n"
        "import holdfast.spark\n"
        f"print(os.environ.get({PYTHON!r}))\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"PATH": system}, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == str(expected)
