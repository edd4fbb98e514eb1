"""A Spark Connect server on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.child_process import end_child
from tests.support.spark_apps import QUIET, spark_environment
from tests.support.spark_daemons import STOP_TIMEOUT_S, start_daemon

_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SETTINGS: Final = {
    **QUIET,
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}


class ConnectServer:
    """Context manager around a server on any free port, with the Python of the tests. Its tables are in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._child: subprocess.Popen[bytes] | None = None
        self.environment = spark_environment(Path(sys.executable), PYSPARK_PYTHON=sys.executable)
        """Also that of a client."""
        self.url = ""

    def __enter__(self) -> ConnectServer:
        # What sbin/start-connect-server.sh runs, in the foreground.
        command: list[str | Path] = [Path(self.environment["SPARK_HOME"]) / "bin" / "spark-submit"]
        for name, value in {**_SETTINGS, "spark.sql.warehouse.dir": str(self._directory / "warehouse")}.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--master", "local[2]", "--class", _SERVER, "spark-internal"]
        ready = r"Spark Connect server started at: (\S+)"
        self._child, address = start_daemon(command, self.environment, self._directory / "server.log", ready)
        self.url = f"sc://{address}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            end_child(self._child, signal.SIGTERM, STOP_TIMEOUT_S)
