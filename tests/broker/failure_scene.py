"""The scene of the failure steps for whole clients: a topic, a broker that is killed, its successor, and readers."""

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
"""The steps of the client-side assignment document."""


class Reads(Protocol):
    """A consumer of the group."""

    @property
    def has(self) -> set[int]:
        """The partitions that it reads now."""

    def close(self) -> None: ...


R = TypeVar("R", bound=Reads)


class Scene(Generic[R]):
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

    def one_reads_and_a_second_comes(self, kill: KillAt) -> tuple[R, R]:
        """The broker is killed at the point while the group makes room for the second; then another takes its place."""
        first = self.read()
        eventually(self.each_has_its_own, "the first has all partitions")
        with WireClient(self.broker.address) as client:
            wait_for_ledger(client)
        self.broker.arm(kill)
        second = self.read()
        self.broker.wait_until_killed()
        self.start_again()
        return first, second

    def start_again(self) -> None:
        self.broker = GroupBroker(self._data, self.broker.settings_to_stay).__enter__()
        with WireClient(self.broker.address) as client:
            wait_until_loaded(client)

    def each_has_its_own(self) -> bool:
        shares = [reader.has for reader in self.readers]
        return all(shares) and set().union(*shares) == ALL and sum(map(len, shares)) == len(ALL)

    def ledger(self) -> list[dict[str, Any]]:
        with WireClient(self.broker.address) as client:
            wait_for_ledger(client)
            return [json.loads(record.value or b"") for record in client.fetch_all("__group_ledger")]

    def settled_ledger(self) -> list[dict[str, Any]]:
        """Once it tells of the assignment that the group has now: events are written in their own time."""

        def tells_of_all() -> bool:
            last = (self.ledger() or [{}])[-1]
            return last.get("kind") == "assigned" and last.get("members") == len(self.readers)

        eventually(tells_of_all, "the ledger tells of the assignment to all readers")
        return self.ledger()

    def generations(self) -> list[int]:
        return [event["generation"] for event in self.ledger() if event["kind"] == "generation formed"]

    def rebalances(self) -> int:
        return sum(event["kind"] == "rebalance started" for event in self.ledger())

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        self.broker.__exit__(None, None, None)
