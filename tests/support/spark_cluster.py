"""A real Spark cluster on this machine: a standalone master and workers from PySpark's package."""

from __future__ import annotations

import importlib.metadata
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.child_process import end_child
from tests.support.kafka_distribution import REPOSITORY
from tests.support.spark_apps import QUIET
from tests.support.spark_daemons import STOP_TIMEOUT_S, as_installed, spark_child, spark_home, start_daemon

HOST: Final = "127.0.0.1"
PACKAGES: Final = "packages"
"""Where an executor finds what the application brought along, in the directory that it runs in."""

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_OF_PYSPARK: Final = ("pyarrow", "pandas", "numpy", "python-dateutil", "pytz", "tzdata", "six")
"""What PySpark itself needs on a worker."""
_OF_HOLDFAST: Final = ("confluent-kafka", "cramjam", "google-crc32c", "uvloop")


class SparkCluster:
    """Context manager around a master and workers of one core each, whose executors' `python3` is `worker_python`."""

    def __init__(self, directory: Path, worker_python: Path, workers: int) -> None:
        self._directory = directory
        self._worker_python = worker_python
        self._children: list[subprocess.Popen[bytes]] = []
        self.work_dirs = [directory / f"work-{number}" for number in range(workers)]
        """Of each worker: the directories of its executors, with their logs."""
        self.url = ""

    def __enter__(self) -> SparkCluster:
        try:
            python = Path(sys.executable)
            self.url = self._start("master", _MASTER, [], python, r"Starting Spark master at (spark://\S+)\s")
            for work_dir in self.work_dirs:
                about = ["--cores", "1", "--memory", "1g", "--work-dir", str(work_dir), self.url]
                ready = r"(Successfully registered with master)"
                self._start(work_dir.name, _WORKER, about, self._worker_python, ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._children:  # the workers first: they end their executors
            end_child(self._children.pop(), signal.SIGTERM, STOP_TIMEOUT_S)

    def submit(self, app: Path, arguments: Sequence[str], settings: Mapping[str, str], within_s: float) -> None:
        """Runs an application by spark-submit. It must end well."""
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.url]
        for name, value in {**QUIET, **settings}.items():
            command += ["--conf", f"{name}={value}"]
        log = self._directory / f"{app.stem}.log"
        child = spark_child([*command, app, *arguments], as_installed(), log)
        try:
            assert child.wait(within_s) == 0, log.read_text(errors="replace")[-4000:]
        finally:
            end_child(child, signal.SIGTERM, STOP_TIMEOUT_S)

    def _start(self, name: str, what: str, arguments: Sequence[str], python: Path, ready: str) -> str:
        """Any free port for each; returns what `ready` found in the log."""
        loopback = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        command = [str(spark_home() / "bin" / "spark-class"), what, *loopback, *arguments]
        child, found = start_daemon(command, as_installed(python), self._directory / f"{name}.log", ready)
        self._children.append(child)
        return found


def bare_python(directory: Path) -> Path:
    """The Python of a worker as PySpark wants it, with pandas and Arrow, and with nothing of Holdfast's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True, timeout=60)
    (site,) = directory.glob("lib/python*/site-packages")
    for name, found in _installed(_OF_PYSPARK):
        (site / name).symlink_to(found)
    return directory / "bin" / "python3"


def pack(archive: Path) -> None:
    """What `pip install --target packages` and `python -m zipfile -c packages.zip packages/*` make of Holdfast."""
    sources = [(path.name, path) for path in (REPOSITORY / "src").iterdir() if (path / "__init__.py").exists()]
    with zipfile.ZipFile(archive, "w") as packed:
        for name, found in [*sources, *_installed(_OF_HOLDFAST)]:
            for path in [found] if found.is_file() else found.rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    packed.write(path, Path(name) / path.relative_to(found) if found.is_dir() else name)


def _installed(packages: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """The modules and directories that these packages have put into the site directory, by name; missing ones not."""
    for package in packages:
        try:
            distribution = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in sorted(tops):
            yield top, Path(str(distribution.locate_file(top)))
