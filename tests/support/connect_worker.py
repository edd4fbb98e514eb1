"""A worker of Kafka Connect in distributed mode: a process of its own, asked over its REST API."""

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.child_process import end_child, start_child
from tests.support.held_ports import HOST, held_port
from tests.support.kafka_apps import kafka_app_command

_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_REST_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 60

SESSION_MS = 6_000
"""For so long the group waits for a worker that was killed, and for the consumers of its tasks."""


@dataclass(frozen=True)
class Task:
    connector: str
    number: int
    state: str
    worker: str


class ConnectWorker:
    """Killed or stopped, it can be started again, under the same address."""

    def __init__(self, bootstrap: str, group: str, directory: Path, name: str) -> None:
        self._held = held_port()
        self.address = f"{HOST}:{self._held.getsockname()[1]}"
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / f"{name}.log"
        self._file = directory / f"{name}.properties"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": f"http://{self.address}",
            "key.converter": _STRINGS,
            "value.converter": _STRINGS,
            "config.storage.topic": f"{group}-configs",
            "config.storage.replication.factor": "1",
            "offset.storage.topic": f"{group}-offsets",
            "offset.storage.replication.factor": "1",
            "offset.storage.partitions": "3",
            "offset.flush.interval.ms": "200",
            "status.storage.topic": f"{group}-status",
            "status.storage.replication.factor": "1",
            "status.storage.partitions": "2",
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "500",
            "consumer.session.timeout.ms": str(SESSION_MS),
            "consumer.heartbeat.interval.ms": "500",
            "plugin.discovery": "service_load",  # the others read every class on the class path
        }
        self._file.write_text("".join(f"{setting}={value}\n" for setting, value in settings.items()))

    def start(self) -> None:
        self._process = start_child(kafka_app_command(_MAIN, str(self._file)), self._log)

    def kill(self) -> None:
        """As ``kill -9`` does."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        self._end(signal.SIGKILL)
        self._held.close()

    def is_ready(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self._log.read_text()[-4000:]
        return self.requested("GET", "/connectors") is not None

    def run_connector(self, name: str, config: Mapping[str, str]) -> bool:
        """Whether it was taken; a group that is rebalancing refuses it."""
        return self.requested("PUT", f"/connectors/{name}/config", config) is not None

    def tasks(self) -> list[Task]:
        """Of all connectors, with the address of the worker that runs each; none while it cannot be said."""
        reported = self.requested("GET", "/connectors?expand=status") or {}
        return [
            Task(connector, task["id"], task["state"], task["worker_id"])
            for connector, described in reported.items()
            for task in described["status"]["tasks"]
        ]

    def requested(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """Its answer; None if it refuses, or does not listen yet."""
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_REST_TIMEOUT_S) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            end_child(self._process, number, _STOP_TIMEOUT_S)
            self._process = None
