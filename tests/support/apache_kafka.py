"""A real Apache Kafka on this machine: one node, broker and KRaft controller in one JVM."""

import base64
import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import raw_wire
from tests.support.child_process import end_child, start_child
from tests.support.held_ports import held_port
from tests.support.kafka_distribution import KafkaDistribution, kafka_distribution

HOST = "127.0.0.1"
NODE_ID = 1

# What Kafka's own start scripts give the broker: a comparison with a starved JVM would be worth nothing.
JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

_START_TIMEOUT_S = 90
_PROBE_TIMEOUT_S = 5  # a starting broker accepts connections before it answers on them
_STOP_TIMEOUT_S = 90
_START_ATTEMPTS = 3  # a held port may still be taken by a process that asks for exactly this one
_POLL_INTERVAL_S = 0.02
_LOG_TAIL_LINES = 25


class ApacheKafkaFailed(Exception):
    """The broker did not start or died; the message ends with the last lines of its log."""


def new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class ApacheKafka:
    """Context manager around one broker.

    ``properties`` override the server properties that are set here. Without ``directory`` everything lives in a
    temporary directory that goes with the broker; a given one is kept.
    """

    _node_id = NODE_ID
    _jvm_options: tuple[str, ...] = JVM_OPTIONS
    _start_timeout_s = _START_TIMEOUT_S

    def __init__(self, properties: Mapping[str, str] | None = None, directory: Path | None = None) -> None:
        self._distribution: KafkaDistribution = kafka_distribution()
        self._overrides = dict(properties or {})
        self._directory_is_ours = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: tuple[int, int] | None = None
        self._held: list[socket.socket] = []
        self._cluster_id = new_cluster_id()
        self.data_dir = self._directory / "data"
        self.log_path = self._directory / "broker.log"
        self.started_in_seconds = 0.0
        self._spawned_at = 0.0

    @property
    def address(self) -> tuple[str, int]:
        if self._ports is None:
            raise ApacheKafkaFailed("the broker was never started")
        return HOST, self._ports[0]

    @property
    def bootstrap(self) -> str:
        """What clients call ``bootstrap.servers``."""
        host, port = self.address
        return f"{host}:{port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ApacheKafkaFailed("the broker is not running")
        return self._process.pid

    def start(self) -> None:
        """Start the broker and return when it answers. A restart keeps data and ports."""
        if self._process is not None:
            raise ApacheKafkaFailed("the broker is running already")
        if self._ports is not None:
            self._launch()
            return
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._release_ports()
            self._held = [held_port(), held_port()]
            self._ports = self._held[0].getsockname()[1], self._held[1].getsockname()[1]
            already_logged = len(self._log_text())
            try:
                self._write_properties()
                self._format_storage()
                self._launch()
                return
            except ApacheKafkaFailed:
                self._ports = None  # never was up: the next start formats again
                # Not only in the last lines, which the failure shows: a shutdown logs many after it.
                if attempt == _START_ATTEMPTS or "Address already in use" not in self._log_text()[already_logged:]:
                    raise

    def stop(self) -> None:
        """Shut down in order, as ``kafka-server-stop.sh`` does. Does nothing when the broker is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker as ``kill -9`` does.

        The next start takes about ten seconds: the controller waits out the dead broker's session
        (``broker.session.timeout.ms``, 9 s) before it admits the new one.
        """
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._release_ports()
            self._remove_directory()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._release_ports()
        self._remove_directory()

    def _release_ports(self) -> None:
        for held in self._held:
            held.close()
        self._held = []

    def _further_ports(self, count: int) -> list[int]:
        """For listeners that a subclass adds in `_write_properties`; held like the other two."""
        held = [held_port() for _ in range(count)]
        self._held += held
        return [one.getsockname()[1] for one in held]

    @property
    def _properties_path(self) -> Path:
        return self._directory / "server.properties"

    def _write_properties(self) -> None:
        properties = self._properties() | self._overrides
        lines = (f"{name}={value}\n" for name, value in properties.items())
        self._properties_path.write_text("".join(lines))

    def _properties(self) -> dict[str, str]:
        port, controller_port = self._ports or (0, 0)
        return {
            "process.roles": "broker,controller",
            "node.id": str(self._node_id),
            "controller.quorum.voters": f"{self._node_id}@{HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            # One node can hold one replica of its internal topics; the defaults ask for three.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }

    def _format_storage(self) -> None:
        shutil.rmtree(self.data_dir, ignore_errors=True)
        # Given with "=": an id in this alphabet may begin with a dash.
        cluster_id = f"--cluster-id={self._cluster_id}"
        command = self._distribution.command(
            "kafka.tools.StorageTool", "format", cluster_id, "--config", str(self._properties_path)
        )
        with self.log_path.open("ab") as log:
            done = subprocess.run(command, stdout=log, stderr=log, timeout=_START_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise self._failed(f"formatting Kafka's storage ended with exit code {done.returncode}")

    def _launch(self) -> None:
        self._spawn()
        self._await_ready()

    def _spawn(self) -> None:
        command = self._distribution.command("kafka.Kafka", str(self._properties_path), jvm_options=self._jvm_options)
        self._spawned_at = time.monotonic()
        self._process = start_child(command, self.log_path)

    def _await_ready(self) -> None:
        try:
            self._wait_until_ready(self._spawned_at + self._start_timeout_s)
        except BaseException:
            self.kill()
            raise
        self.started_in_seconds = time.monotonic() - self._spawned_at

    def _wait_until_ready(self, deadline: float) -> None:
        while not self._is_ready():
            process = self._process
            if process is not None and process.poll() is not None:
                raise self._failed(f"Apache Kafka ended with exit code {process.returncode} while starting")
            if time.monotonic() > deadline:
                raise self._failed(f"Apache Kafka was not ready within {self._start_timeout_s} s")
            time.sleep(_POLL_INTERVAL_S)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            raw_wire.api_versions(self.address, timeout=_PROBE_TIMEOUT_S)
            # A broker that is still fenced answers, but names no live broker to its clients.
            return raw_wire.broker_count(self.address, timeout=_PROBE_TIMEOUT_S) > 0
        return False

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            end_child(self._process, number, _STOP_TIMEOUT_S)
            self._process = None

    def _failed(self, what: str) -> ApacheKafkaFailed:
        lines = self._log_text().splitlines()
        return ApacheKafkaFailed("\n".join([f"{what}; its log ends with:", *lines[-_LOG_TAIL_LINES:]]))

    def _log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _remove_directory(self) -> None:
        if self._directory_is_ours:
            shutil.rmtree(self._directory, ignore_errors=True)
