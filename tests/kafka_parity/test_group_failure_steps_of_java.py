"""The four failure steps of Kafka's Client-side Assignment Proposal with a group of Kafka's VerifiableConsumer.

The Java client answers a lost connection in the middle of a join or a sync with a new join, so more of its members
rejoin than the document asks for; what must hold is the same.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.failure_steps import ALL, GROUP, KILLS, FailureSteps
from tests.support.child_process import end_child, start_child
from tests.support.eventually import eventually
from tests.support.kafka_distribution import kafka_distribution

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
SESSION_MS = 10_000
PATIENCE_S = 90

GENERATIONS = {
    "1, before the last join": [1, 2],
    # Both join again, each in its own time: if the first is alone at first, there is one generation more.
    "1, before the generation is stored": None,
    # Nobody was notified of generation 2, and it is not used again.
    "2, after the generation is stored": [1, 3],
    # These members joined for generation 2 and lost their syncs: they join again. The generation is part of the Java
    # client's subscription, so even a follower's looks changed.
    "3, before the assignment is stored": [1, 2, 3],
    "4, after the assignment is stored": [1, 2, 3],
}
"""That were formed, in the end."""


class JavaReader:
    """The tool in a process of its own; it prints a line of JSON for all that happens to it."""

    def __init__(self, bootstrap: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="verifiable-consumer-")
        directory = Path(self._directory.name)
        config = directory / "consumer.properties"
        # Left to itself, the client forgets its metadata with the last broker, takes that for a change, and rejoins.
        config.write_text("heartbeat.interval.ms=300\nreconnect.backoff.max.ms=200\nmetadata.recovery.strategy=none\n")
        self._output = directory / "output"
        command = kafka_distribution().command(
            VERIFIABLE_CONSUMER,
            *("--bootstrap-server", bootstrap, "--topic", "orders", "--group-id", GROUP),
            *("--session-timeout", str(SESSION_MS), "--command-config", str(config)),
            *("--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor"),
            jvm_options=("-Xmx128M", "-XX:TieredStopAtLevel=1", "-Dlog.level=WARN"),
        )
        self._process: subprocess.Popen[bytes] = start_child(command, self._output)

    @property
    def log(self) -> list[tuple[str, set[int]]]:
        """What it was given and what was taken from it."""
        events: list[dict[str, Any]] = []
        for line in self._output.read_text().splitlines(keepends=True):
            if line.startswith("{") and line.endswith("}\n"):
                events.append(json.loads(line))
        return [
            (event["name"].removeprefix("partitions_"), {entry["partition"] for entry in event["partitions"]})
            for event in events
            if event["name"] in ("partitions_assigned", "partitions_revoked")
        ]

    @property
    def has(self) -> set[int]:
        kind, partitions = self.log[-1] if self.log else ("revoked", set())
        return partitions if kind == "assigned" else set()

    def close(self) -> None:
        end_child(self._process, signal.SIGTERM, patience_s=30)
        self._directory.cleanup()


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[FailureSteps[JavaReader]]:
    started = FailureSteps(tmp_path / "data", JavaReader)
    yield started
    started.close()


@pytest.mark.parametrize("step", KILLS)
def test_a_second_reader_comes_and_the_broker_is_killed_at_step(step: str, steps: FailureSteps[JavaReader]) -> None:
    first, second = steps.start_second_reader(KILLS[step])

    # then both read in the end, each its own part
    eventually(steps.each_has_its_assignment, "each reader has its part", within_s=PATIENCE_S)

    # and no generation was used twice
    expected = GENERATIONS[step]
    if expected is None:
        assert steps.generations() in ([1, 2], [1, 2, 3])
        return
    assert steps.generations() == expected
    assert first.log[:2] == [("assigned", ALL), ("revoked", ALL)]
    assert [len(first.log), len(second.log)] == [3, 1], "one revocation for the second reader, none for the kill"
