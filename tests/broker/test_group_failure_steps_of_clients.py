"""The four failure steps of Kafka's Client-side Assignment Proposal with confluent-kafka's and Holdfast's consumers.

One member reads all of a topic when a second comes; the broker is killed at the step's point and another takes its
place. Both clients send again what they got no answer to, so they do what the document says: a member that waited for a
join joins again, a member that waited for a sync only syncs.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

import holdfast
from tests.broker.failure_steps import ALL, GROUP, KILLS, FailureSteps
from tests.broker.group_members import described
from tests.broker.wire_client import WireClient, batch, produce_request
from tests.support.eventually import eventually

SESSION_MS = 6_000
"""The shortest that brokers allow by default."""

CLIENTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "confluent-kafka": confluent_kafka.Consumer,
    "holdfast": holdfast.Consumer,
}
"""Both have the calls that are used here."""


@dataclass(frozen=True)
class Expected:
    """What is in the ledger in the end."""

    generations: list[int]
    rebalances: int
    """The first is that of the first reader; one more than the second reader's makes all rejoin."""


EXPECTED = {
    # The event that would be the second is never reported.
    "1, before the last join": Expected([1, 2], 2),
    # Both join again, each in its own time: if the first is alone at first, there is one generation more.
    "1, before the generation is stored": None,
    # All rejoin. Nobody was notified of generation 2, and it is not used again.
    "2, after the generation is stored": Expected([1, 3], 3),
    # All sync again, nobody rejoins.
    "3, before the assignment is stored": Expected([1, 2], 2),
    "4, after the assignment is stored": Expected([1, 2], 2),
}


class Reader:
    """A consumer that polls in a thread of its own and writes down what it is given and what is taken from it."""

    def __init__(self, make: Callable[[dict[str, Any]], Any], bootstrap: str) -> None:
        self._consumer = make(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "client.id": f"reader-{uuid.uuid4().hex[:4]}",
                "partition.assignment.strategy": "range",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 300,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self.log: list[tuple[str, set[int]]] = []
        self.has: set[int] = set()
        self.read: list[str | bytes] = []
        self._stop = threading.Event()
        self._consumer.subscribe(["orders"], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.read.append(message.value() or b"")
        self._consumer.close()

    def _assigned(self, _: object, partitions: list[TopicPartition]) -> None:
        self.has = {partition.partition for partition in partitions}
        self.log.append(("assigned", self.has))

    def _revoked(self, _: object, partitions: list[TopicPartition]) -> None:
        self.has = set()
        self.log.append(("revoked", {partition.partition for partition in partitions}))

    def _lost(self, _: object, partitions: list[TopicPartition]) -> None:
        self.has = set()
        self.log.append(("lost", {partition.partition for partition in partitions}))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)


@pytest.fixture(params=CLIENTS)
def steps(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FailureSteps[Reader]]:
    started = FailureSteps(tmp_path / "data", partial(Reader, CLIENTS[request.param]))
    yield started
    started.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("step", KILLS)
def test_a_second_reader_comes_and_the_broker_is_killed_at_step(step: str, steps: FailureSteps[Reader]) -> None:
    first, second = steps.start_second_reader(KILLS[step])

    # then both read in the end, each its own part
    eventually(steps.each_has_its_assignment, "each reader has its part", within_s=60)
    assert [len(first.has), len(second.has)] == [1, 1]

    # and they got there as the document says: by joining again, or only by syncing again
    result = EXPECTED[step]
    if result is None:
        assert (steps.generations(), steps.rebalances()) in (([1, 2], 3), ([1, 2, 3], 4))
        return
    assert (steps.generations(), steps.rebalances()) == (result.generations, result.rebalances)
    assert first.log[:2] == [("assigned", ALL), ("revoked", ALL)]
    assert [len(first.log), len(second.log)] == [3, 1], "one revocation for the second reader, none for the kill"


@pytest.mark.timeout(120)
def test_members_of_a_stable_group_do_not_notice_a_killed_broker(steps: FailureSteps[Reader]) -> None:
    """The other end of the scale: nothing is under way."""
    steps.read()
    steps.read()
    eventually(steps.each_has_its_assignment, "each reader has its part", within_s=60)
    events = len(steps.settled_ledger())
    logs = [list(reader.log) for reader in steps.readers]

    steps.broker.kill()
    steps.start_again()
    with WireClient(steps.broker.address) as client:
        stored = described(client, GROUP)
        assert (stored.group_state, len(stored.members)) == ("Stable", 2)

    # when they read on, for longer than their sessions would last without heartbeats
    with WireClient(steps.broker.address) as client:
        for partition in ALL:
            asked = produce_request("orders", batch(b"after the kill"), partition=partition)
            assert client.ask(asked, 9).responses[0].partition_responses[0].error_code == 0
    eventually(lambda: all(reader.read for reader in steps.readers), "both read on")
    time.sleep(1.5 * SESSION_MS / 1000)  # nothing happens, and it had the time to

    assert [reader.log for reader in steps.readers] == logs
    assert len(steps.ledger()) == events
    assert steps.each_has_its_assignment()
