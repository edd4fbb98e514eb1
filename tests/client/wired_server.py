"""A broker whose clients all come through a wire that the test holds in its hands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.client.held_wire import HeldWire
from tests.client.workload import Workload
from tests.clients.servers import Server


@dataclass(frozen=True)
class WiredServer:
    broker: Server
    wire: HeldWire

    def workload(self, group: str, topic: str, directory: Path) -> Workload:
        return Workload(self.broker, self.wire.bootstrap, group, topic, directory)
