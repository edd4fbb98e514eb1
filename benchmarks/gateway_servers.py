"""A cluster of Apache Kafka, its brokers one by one, and a gateway in front of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.proc import cpu_seconds
from benchmarks.wire import Wire
from holdfast.wire.apis.find_coordinator import FindCoordinatorRequest
from tests.support.apache_kafka import JVM_OPTIONS
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_cluster import KafkaCluster

NO_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_PROPERTIES: Final = {
    # As in `benchmarks.servers`: rounds leave gigabytes behind.
    "log.segment.delete.delay.ms": "1000",
    "socket.listen.backlog.size": "4096",
    **NO_DELAY,
}
_FIND_VERSION: Final = 4
_PATIENCE_SECONDS: Final = 120
_POLL_SECONDS: Final = 0.05
_IDLE_SECONDS: Final = 0.5
_IDLE_CPU_SECONDS: Final = 0.02
"""A gateway is idle if it used less in `_IDLE_SECONDS`."""


def new_cluster(brokers: int) -> KafkaCluster:
    """With the JVM options of Kafka's own start scripts."""
    return KafkaCluster(brokers, _PROPERTIES, jvm_options=JVM_OPTIONS)


def new_gateway(cluster: KafkaCluster, *options: str) -> GatewayProcess:
    return GatewayProcess(cluster, NO_DELAY, options)


def await_idle(gateway: GatewayProcess) -> None:
    """After its start, a gateway claims the partitions of its state and reads them, which is not to be measured."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        before = cpu_seconds(gateway.pid)
        time.sleep(_IDLE_SECONDS)
        if cpu_seconds(gateway.pid) - before < _IDLE_CPU_SECONDS:
            return
    raise RuntimeError(f"the gateway was not idle within {_PATIENCE_SECONDS} s")


@dataclass(frozen=True)
class ClusterBroker:
    """One broker of the cluster, without a gateway."""

    cluster: KafkaCluster
    node_id: int

    @property
    def pid(self) -> int:
        return self.cluster.pid(self.node_id)

    @property
    def address(self) -> tuple[str, int]:
        return self.cluster.address(self.node_id)

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def data_dir(self) -> Path:
        return self.cluster.data_dir(self.node_id)

    def kill(self) -> None:
        self.cluster.kill(self.node_id)


def any_broker(cluster: KafkaCluster) -> ClusterBroker:
    return ClusterBroker(cluster, cluster.node_ids[0])


def coordinator(cluster: KafkaCluster, group: str) -> ClusterBroker:
    """The broker that coordinates this group. Kafka creates `__consumer_offsets` with the first request."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with Wire(any_broker(cluster)) as wire:
        while True:
            response = wire.ask(FindCoordinatorRequest(coordinator_keys=[group]), _FIND_VERSION)
            found = response.coordinators[0]
            if not found.error_code:
                return ClusterBroker(cluster, found.node_id)
            if time.monotonic() > deadline:
                raise RuntimeError(f"no coordinator for group {group} within {_PATIENCE_SECONDS} s")
            time.sleep(_POLL_SECONDS)
