"""What the failure steps of whole clients need: a topic, a broker that is killed, its successor, and readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tests.broker.group_broker import GroupBroker, KillAt
from tests.broker.group_members import wait_for_ledger, wait_until_loaded
from tests.broker.wire_client import WireClient
from tests.support.eventually import eventually

GROUP = "readers"
ALL = {0, 1}
"""The partitions of the topic `orders`."""

KILLS = {
    "1, before the last join": KillAt(event="rebalance started"),
    "1, before the generation is stored": KillAt(record="GenerationKey", point="before write"),
    "2, after the generation is stored": KillAt(record="GenerationKey", point="written"),
    "3, before the assignment is stored": KillAt(record="GroupMetadataKey", point="before write"),
    "4, after the assignment is stored": KillAt(record="GroupMetadataKey", point="written"),
}
"""The failure steps of the Client-side Assignment Proposal in Kafka's wiki (docs/protocol.md links to it)."""


class Reads(Protocol):
    """A consumer of the group."""

    @property
    def has(self) -> set[int]:
        """The partitions that it reads now."""

    def close(self) -> None: ...


R = TypeVar("R", bound=Reads)


class FailureSteps(Generic[R]):
    """`start_reader` is given where the broker is."""

    def __init__(self, data: Path, start_reader: Callable[[str], R]) -> None:
        self._data = data
        self._start_reader = start_reader
        self.readers: list[R] = []
        self.broker = GroupBroker(data).__enter__()
        with WireClient(self.broker.address) as client:
            client.create_topic("orders", partitions=2)

    def read(self) -> R:
        self.readers.append(self._start_reader(self.broker.bootstrap))
        return self.readers[-1]

    def start_second_reader(self, kill: KillAt) -> tuple[R, R]:
        """The broker is killed at the point while the group makes room for the second; then another takes its place."""
        first = self.read()
        eventually(self.each_has_its_assignment, "the first has all partitions")
        with WireClient(self.broker.address) as client:
            wait_for_ledger(client)
        self.broker.arm(kill)
        second = self.read()
        self.broker.wait_until_killed()
        self.start_again()
        return first, second

    def start_again(self) -> None:
        self.broker = GroupBroker(self._data, self.broker.settings_to_restart).__enter__()
        with WireClient(self.broker.address) as client:
            wait_until_loaded(client)

    def each_has_its_assignment(self) -> bool:
        assignments = [reader.has for reader in self.readers]
        return all(assignments) and set().union(*assignments) == ALL and sum(map(len, assignments)) == len(ALL)

    def ledger(self) -> list[dict[str, Any]]:
        with WireClient(self.broker.address) as client:
            wait_for_ledger(client)
            return [json.loads(record.value or b"") for record in client.fetch_all("__group_ledger")]

    def settled_ledger(self) -> list[dict[str, Any]]:
        """Once it has the event of the group's current assignment: events are written later than the assignment."""

        def has_assigned_all() -> bool:
            last = (self.ledger() or [{}])[-1]
            return last.get("kind") == "assigned" and last.get("members") == len(self.readers)

        eventually(has_assigned_all, "the ledger has the assignment of all readers")
        return self.ledger()

    def generations(self) -> list[int]:
        return [event["generation"] for event in self.ledger() if event["kind"] == "generation formed"]

    def rebalances(self) -> int:
        return sum(event["kind"] == "rebalance started" for event in self.ledger())

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        self.broker.__exit__(None, None, None)
