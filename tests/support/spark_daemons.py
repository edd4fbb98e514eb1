"""Processes of Spark that run until the test ends them: a master, workers, a Spark Connect server."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.child_process import end_child, start_child
from tests.support.eventually import eventually
from tests.support.spark_apps import spark_environment

STOP_TIMEOUT_S: Final = 30
_ENDED_CHARS: Final = 4000


def start_daemon(
    command: Sequence[str | Path], environment: Mapping[str, str], log: Path, ready: str
) -> tuple[subprocess.Popen[bytes], str]:
    """The process, which is to be ended, and what the pattern `ready` found in its log."""
    child = spark_child(command, environment, log)

    def found() -> list[str]:
        text = log.read_text(errors="replace")
        assert child.poll() is None, f"{command[0]} ended:\n{text[-_ENDED_CHARS:]}"
        return re.findall(ready, text)

    try:
        return child, eventually(found, f"{log.stem} is ready")[0]
    except BaseException:
        end_child(child, signal.SIGKILL, STOP_TIMEOUT_S)
        raise


def spark_child(command: Sequence[str | Path], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    # env(1) becomes the command, and Spark's scripts become Java: the child's pid is that of the JVM.
    settings = [f"{name}={value}" for name, value in environment.items()]
    return start_child(["env", "-i", *settings, *map(str, command)], log)


def as_installed(python: Path = Path(sys.executable)) -> dict[str, str]:
    """The environment of Spark as pip has brought it, where `python3` is this one."""
    return spark_environment(python, SPARK_HOME=str(spark_home()), SPARK_DAEMON_MEMORY="256m")


def spark_home() -> Path:
    """As pip has brought it: what a user submits with."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
