"""The four failure steps of the client-side assignment document with whole clients: a group of confluent-kafka.

One member reads all of a topic when a second comes; the broker is killed at the step's point and another takes its
place. What the clients say then is theirs to decide; what must come of it is that each partition has one reader, that
no generation is used twice, and that a rebalance begins only if somebody joined.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker.group_broker import GroupBroker, KillAt
from tests.broker.group_members import described, wait_for_ledger, wait_until_loaded
from tests.broker.wire_client import WireClient
from tests.support.eventually import eventually

GROUP = "readers"
ALL = {0, 1}

STEPS = {
    "1, before the last join": KillAt(event="rebalance started"),
    "1, before the generation is stored": KillAt(record="GenerationKey", point="before write"),
    "2, after the generation is stored": KillAt(record="GenerationKey", point="written"),
    "3, before the assignment is stored": KillAt(record="GroupMetadataKey", point="before write"),
    "4, after the assignment is stored": KillAt(record="GroupMetadataKey", point="written"),
}


class Reader:
    """A consumer that polls in a thread of its own and writes down what it is given and what is taken from it."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "client.id": f"reader-{uuid.uuid4().hex[:4]}",
                "partition.assignment.strategy": "range",
                "session.timeout.ms": 20_000,
                "heartbeat.interval.ms": 300,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "enable.auto.commit": False,
            }
        )
        self.log: list[tuple[str, set[int]]] = []
        self.has: set[int] = set()
        self._stop = threading.Event()
        self._consumer.subscribe(["orders"], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._consumer.poll(0.05)
        self._consumer.close()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.has = {partition.partition for partition in partitions}
        self.log.append(("assigned", self.has))

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.has = set()
        self.log.append(("revoked", {partition.partition for partition in partitions}))

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.has = set()
        self.log.append(("lost", {partition.partition for partition in partitions}))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)


class Scene:
    """A topic, a broker, and the readers."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.readers: list[Reader] = []
        self.broker = GroupBroker(data).__enter__()
        with WireClient(self.broker.address) as client:
            client.create_topic("orders", partitions=2)

    def read(self) -> Reader:
        self.readers.append(Reader(self.broker.bootstrap))
        return self.readers[-1]

    def start_again(self) -> None:
        self.broker = GroupBroker(self._data, self.broker.settings_to_stay).__enter__()
        with WireClient(self.broker.address) as client:
            wait_until_loaded(client)

    def each_has_its_own(self) -> bool:
        shares = [reader.has for reader in self.readers]
        return all(shares) and set().union(*shares) == ALL and sum(map(len, shares)) == len(ALL)

    def ledger(self) -> list[dict[str, Any]]:
        with WireClient(self.broker.address) as client:
            return [json.loads(record.value or b"") for record in client.fetch_all("__group_ledger")]

    def generations(self) -> list[int]:
        return [event["generation"] for event in self.ledger() if event["kind"] == "generation formed"]

    def rebalances(self) -> int:
        return sum(event["kind"] == "rebalance started" for event in self.ledger())

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        self.broker.__exit__(None, None, None)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    started = Scene(tmp_path / "data")
    yield started
    started.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("step", STEPS)
def test_a_second_reader_comes_and_the_broker_is_killed_at_step(step: str, scene: Scene) -> None:
    # given one that reads everything
    first = scene.read()
    eventually(scene.each_has_its_own, "the first has all partitions")
    with WireClient(scene.broker.address) as client:
        wait_for_ledger(client)
    before = scene.generations()

    # when a second comes and the broker is killed at the step
    scene.broker.arm(STEPS[step])
    second = scene.read()
    scene.broker.wait_until_killed()
    scene.start_again()

    # then both read in the end, each its own part
    eventually(scene.each_has_its_own, "each reader has its part", within_s=60)
    assert [len(first.has), len(second.has)] == [1, 1]

    # and no generation was used twice
    generations = scene.generations()
    print(step, generations, [(e["kind"], e["generation"], e["cause"]) for e in scene.ledger()], first.log, second.log)
    assert generations == sorted(set(generations))
    assert generations[: len(before)] == before


@pytest.mark.timeout(120)
def test_a_kill_of_a_broker_whose_group_is_stable_is_noticed_by_nobody(scene: Scene) -> None:
    """The other end of the scale: nothing is under way."""
    scene.read()
    scene.read()
    eventually(scene.each_has_its_own, "each reader has its part", within_s=60)
    logs = [list(reader.log) for reader in scene.readers]
    events = len(scene.ledger())

    scene.broker.kill()
    scene.start_again()
    with WireClient(scene.broker.address) as client:
        stored = described(client, GROUP)
        assert (stored.group_state, len(stored.members)) == ("Stable", 2)

    # when both have shown themselves to the new broker: their sessions would have begun to count
    scene.readers[0]._consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    scene.readers[1]._consumer.commit(offsets=[TopicPartition("orders", 1, 0)], asynchronous=False)

    assert [reader.log for reader in scene.readers] == logs
    assert len(scene.ledger()) == events
    assert scene.each_has_its_own()
