"""A real Spark cluster on this machine: a standalone master and a worker from PySpark's package."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.child_process import end_child, start_child
from tests.support.eventually import eventually
from tests.support.kafka_distribution import REPOSITORY
from tests.support.process_tree import command_line, descendants
from tests.support.spark_apps import APPS, QUIET, spark_environment

HOST: Final = "127.0.0.1"
PACKAGES: Final = "packages"
"""Where an executor finds what the application brought along, in the directory that it runs in."""

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_STOP_TIMEOUT_S: Final = 30
_OF_PYSPARK: Final = ("pyarrow", "pandas", "numpy", "python-dateutil", "pytz", "tzdata", "six")
"""What PySpark itself needs on a worker."""
_OF_HOLDFAST: Final = ("confluent-kafka", "cramjam", "google-crc32c", "uvloop")


class SparkCluster:
    """Context manager around a master and one worker, whose executors' `python3` is `worker_python`."""

    def __init__(self, directory: Path, worker_python: Path) -> None:
        self._directory = directory
        self._worker_python = worker_python
        self._children: list[subprocess.Popen[bytes]] = []
        self.work_dir = directory / "work"
        self.url = ""

    def __enter__(self) -> SparkCluster:
        try:
            self.url = self._start(_MASTER, [], Path(sys.executable), r"Starting Spark master at (spark://\S+)\s")
            about = ["--cores", "2", "--memory", "1g", "--work-dir", str(self.work_dir), self.url]
            self._start(_WORKER, about, self._worker_python, r"(Successfully registered with master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._children:  # the worker first: it ends its executors
            end_child(self._children.pop(), signal.SIGTERM, _STOP_TIMEOUT_S)

    @contextmanager
    def submitted(self, app: str, arguments: Sequence[str], settings: Mapping[str, str]) -> Iterator[Application]:
        """Runs tests/spark/applications/`app` by spark-submit. It ends with the block at the latest."""
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.url]
        for name, value in {**QUIET, **settings}.items():
            command += ["--conf", f"{name}={value}"]
        log = self._directory / f"{app}.log"
        child = self._child([*command, str(APPS / app), *arguments], Path(sys.executable), log)
        try:
            yield Application(child, log)
        finally:
            end_child(child, signal.SIGTERM, _STOP_TIMEOUT_S)

    def _start(self, what: str, arguments: Sequence[str], python: Path, ready: str) -> str:
        """Any free port for each; returns what `ready` found in the log."""
        log = self._directory / f"{what.rpartition('.')[2]}.log"
        loopback = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        command = [str(spark_home() / "bin" / "spark-class"), what, *loopback, *arguments]
        child = self._child(command, python, log)
        self._children.append(child)

        def said() -> list[str]:
            text = log.read_text(errors="replace")
            assert child.poll() is None, f"{what} ended:\n{text[-4000:]}"
            return re.findall(ready, text)

        return eventually(said, f"{what} is ready")[0]

    def _child(self, command: Sequence[str], python: Path, log: Path) -> subprocess.Popen[bytes]:
        environment = spark_environment(python, SPARK_HOME=str(spark_home()), SPARK_DAEMON_MEMORY="256m")
        # env(1) becomes the command, and Spark's scripts become Java: the child's pid is that of the JVM.
        settings = [f"{name}={value}" for name, value in environment.items()]
        return start_child(["env", "-i", *settings, *command], log)


class Application:
    """An application that was submitted; its driver is the process."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child = child
        self._log = log

    @property
    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def assert_runs(self) -> None:
        assert self._child.poll() is None, f"the application ended:\n{self.log_text[-4000:]}"

    def reader_pids(self) -> list[int]:
        """The processes in which Spark keeps the stream readers of its queries."""
        return [pid for pid in descendants(self._child.pid) if "python_streaming_source_runner" in command_line(pid)]

    def end(self, within_s: float) -> int:
        return self._child.wait(within_s)


def spark_home() -> Path:
    """As pip has brought it: what a user submits with."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


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
