"""A broker whose clients all come through a wire that the test holds in its hands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.client_compat.servers import Server
from tests.holdfast_client.numbered_workload import Workload
from tests.holdfast_client.pausing_proxy import PausingProxy


@dataclass(frozen=True)
class ProxiedBroker:
    broker: Server
    proxy: PausingProxy

    def workload(self, group: str, topic: str, directory: Path) -> Workload:
        return Workload(self.broker, self.proxy.bootstrap, group, topic, directory)
