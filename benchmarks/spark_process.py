"""A Spark application as the load, in its own process. This side sends the commands."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.results import REPOSITORY
from tests.support.kafka_distribution import run_script

_START_SECONDS: Final = 120
_STOP_SECONDS: Final = 60
_LOG_TAIL_LINES: Final = 30


class SparkFailed(Exception):
    """The message ends with the last lines of the application's output."""


def reported(versions: dict[str, str]) -> str:
    """The text for the page."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


class SparkProcess:
    """One application with one session for several measurements, because Java is faster when it is warm."""

    def __init__(self, cores: int, *, own_source: bool, with_delta: bool = False) -> None:
        """`own_source`: with the jars of Spark's own Kafka source. `with_delta`: with Delta's own data source, in the
        newest Spark for which there is one."""
        jars = [run_script("spark-kafka-ensure")] if own_source else []
        jars += [run_script("spark-delta-ensure")] if with_delta else []
        python = run_script("spark-oldest-ensure") if with_delta else sys.executable
        self.versions: dict[str, str] = {}
        self._log = tempfile.NamedTemporaryFile(prefix="spark-", suffix=".log")  # noqa: SIM115 - closed at exit
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.spark_session", json.dumps({"cores": cores, "jars": jars})],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> SparkProcess:
        self.versions = self._answer(_START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=_STOP_SECONDS)  # its stdin ends
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._log.close()

    def ask(self, command: str, patience_s: float, **options: Any) -> dict[str, Any]:
        """One measurement."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **options}) + "\n")
        self._process.stdin.flush()
        return self._answer(patience_s)

    def _answer(self, patience_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], patience_s)[0]:
            self._process.kill()  # otherwise a late answer would be read as the answer to the next request
            raise SparkFailed(f"Spark did not answer within {patience_s:g} s; {self._log_tail()}")
        line = self._process.stdout.readline()
        if not line:
            raise SparkFailed(f"Spark ended; {self._log_tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _log_tail(self) -> str:
        lines = Path(self._log.name).read_text(errors="replace").splitlines()
        return "\n".join(["it said:", *lines[-_LOG_TAIL_LINES:]])
