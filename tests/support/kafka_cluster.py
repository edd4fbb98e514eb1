"""A real Apache Kafka cluster on this machine: nodes that are broker and controller, with a listener for a gateway.

Each broker has two listeners for clients. PLAINTEXT has the broker's own address: for clients that go to Kafka
directly, and for the brokers themselves. GW is for the gateway: it advertises the address that the gateway has for that
broker. What a client reads in Metadata through the gateway leads it back to the gateway.
"""

import contextlib
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import raw_wire
from tests.support.apache_kafka import HOST, ApacheKafka, ApacheKafkaFailed, new_cluster_id
from tests.support.eventually import eventually
from tests.support.held_ports import held_port, held_port_range

GATEWAY_LISTENER = "GW"

# Several brokers share two cores with the tests, and most of them live for a minute: they must start soon and stay
# small. Who measures throughput gives a cluster other options.
SMALL_JVM = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

_START_TIMEOUT_S = 300
_START_ATTEMPTS = 3  # a held port may still be taken by a process that asks for exactly this one
_PROBE_TIMEOUT_S = 5


@dataclass(frozen=True)
class NodePorts:
    direct: int
    controller: int
    gateway: int
    """Of the listener that the gateway connects to."""
    advertised: int
    """Of the gateway, which that listener names to clients."""


class KafkaNode(ApacheKafka):
    """One broker of a cluster, which has chosen its ports."""

    _start_timeout_s = _START_TIMEOUT_S

    def __init__(
        self,
        node_id: int,
        ports: Mapping[int, NodePorts],
        cluster_id: str,
        properties: Mapping[str, str],
        jvm_options: tuple[str, ...],
        directory: Path,
        gateway_protocol: str,
    ) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(properties, directory)
        self._node_id = node_id
        self._all_ports = ports
        self._cluster_id = cluster_id
        self._jvm_options = jvm_options
        self._gateway_protocol = gateway_protocol
        self._ports = ports[node_id].direct, ports[node_id].controller

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def prepare(self) -> None:
        self._write_properties()
        self._format_storage()

    def spawn(self) -> None:
        """Starts the process; `await_ready` waits for it. A quorum needs more than one of them."""
        self._spawn()

    def await_ready(self) -> None:
        self._await_ready()

    def says_address_in_use(self) -> bool:
        return "Address already in use" in self._log_text()

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            raw_wire.api_versions(self.address, timeout=_PROBE_TIMEOUT_S)
            # While it is fenced, it knows the others, and not itself.
            return self._node_id in raw_wire.brokers(self.address, timeout=_PROBE_TIMEOUT_S)
        return False

    def _properties(self) -> dict[str, str]:
        mine = self._all_ports[self._node_id]
        voters = (f"{node_id}@{HOST}:{ports.controller}" for node_id, ports in self._all_ports.items())
        direct = f"PLAINTEXT://{HOST}:{mine.direct}"
        controller = f"CONTROLLER://{HOST}:{mine.controller}"
        replicas = min(3, len(self._all_ports))
        in_sync = min(2, replicas)
        return super()._properties() | {
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"{direct},{controller},{GATEWAY_LISTENER}://{HOST}:{mine.gateway}",
            "advertised.listeners": f"{direct},{GATEWAY_LISTENER}://{HOST}:{mine.advertised}",
            "listener.security.protocol.map": (
                f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{GATEWAY_LISTENER}:{self._gateway_protocol}"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(in_sync),
            "unclean.leader.election.enable": "false",
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(in_sync),
            "share.coordinator.state.topic.replication.factor": str(replicas),
            "share.coordinator.state.topic.min.isr": str(in_sync),
            # Fewer than Kafka's 50, which take a while to be made, and enough that every broker leads some.
            "offsets.topic.num.partitions": "10",
            "transaction.state.log.num.partitions": "10",
            # The cleaner's 128 MB are a quarter of this heap.
            "log.cleaner.dedupe.buffer.size": "16777216",
        }


class KafkaCluster:
    """Context manager around brokers 1 to ``nodes``.

    ``properties`` override server properties, of all brokers. ``gateway_protocol`` is that of the listener GW; what it
    needs (``listener.name.gw.…``) is in the properties. The gateway's ports are held for it while the cluster lives: it
    listens on ``gateway_address``, and for broker N on the port N + 1 above.
    """

    def __init__(
        self,
        nodes: int = 3,
        properties: Mapping[str, str] | None = None,
        *,
        jvm_options: tuple[str, ...] = SMALL_JVM,
        gateway_protocol: str = "PLAINTEXT",
    ) -> None:
        self.node_ids: Sequence[int] = range(1, nodes + 1)
        self._properties = dict(properties or {})
        self._jvm_options = jvm_options
        self._gateway_protocol = gateway_protocol
        self._directory = Path(tempfile.mkdtemp(prefix="kafka-cluster-"))
        self._held: list[socket.socket] = []
        self._nodes: dict[int, KafkaNode] = {}
        self._ports: dict[int, NodePorts] = {}
        self._gateway_base = 0
        self.started_in_seconds = 0.0

    # -- where it is ---------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers`` of clients that go to the brokers directly."""
        return ",".join(f"{HOST}:{ports.direct}" for ports in self._ports.values())

    @property
    def gateway_bootstrap(self) -> str:
        """``--kafka`` of a gateway: the listener GW of each broker, with the broker's id."""
        return ",".join(f"{node_id}={HOST}:{ports.gateway}" for node_id, ports in self._ports.items())

    @property
    def gateway_address(self) -> tuple[str, int]:
        """Where a gateway must listen, because that is what the brokers advertise."""
        return HOST, self._gateway_base

    def address(self, node_id: int) -> tuple[str, int]:
        return self._nodes[node_id].address

    def pid(self, node_id: int) -> int:
        return self._nodes[node_id].pid

    def is_running(self, node_id: int) -> bool:
        return self._nodes[node_id].is_running

    def data_dir(self, node_id: int) -> Path:
        return self._nodes[node_id].data_dir

    # -- its life ------------------------------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """End a broker as ``kill -9`` does. What it led has no leader for ``broker.session.timeout.ms`` (9 s)."""
        self._nodes[node_id].kill()

    def stop(self, node_id: int) -> None:
        """Shut a broker down in order: it hands over what it leads first."""
        self._nodes[node_id].stop()

    def start(self, node_id: int) -> None:
        """Start a broker again, with its data and ports, and return when the cluster has admitted it."""
        self._nodes[node_id].start()

    def __enter__(self) -> Self:
        try:
            began = time.monotonic()
            self._start_all()
            self.started_in_seconds = time.monotonic() - began
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remove()

    def _start_all(self) -> None:
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._choose_ports()
            try:
                # Formatting is a JVM of its own for each.
                with ThreadPoolExecutor(len(self._nodes)) as workers:
                    list(workers.map(KafkaNode.prepare, self._nodes.values()))
                # All from this thread, with which they would end.
                for node in self._nodes.values():
                    node.spawn()
                for node in self._nodes.values():
                    node.await_ready()
                self._await_acquaintance()
                return
            except ApacheKafkaFailed:
                self._kill_all()
                if attempt == _START_ATTEMPTS or not any(one.says_address_in_use() for one in self._nodes.values()):
                    raise

    def _await_acquaintance(self) -> None:
        """A client learns of all brokers from any of them."""
        for node_id in self.node_ids:
            address = self.address(node_id)
            eventually(partial(self._knows_all, address), f"broker {node_id} knows all brokers")

    def _knows_all(self, address: tuple[str, int]) -> bool:
        return raw_wire.broker_count(address) == len(self._nodes)

    def _choose_ports(self) -> None:
        self._release_ports()
        # The gateway's: its own, the one of a broker 0, which there is not, and those of the brokers.
        gateway = held_port_range(2 + len(self.node_ids))
        own = [held_port() for _ in range(3 * len(self.node_ids))]
        self._held = gateway + own
        self._gateway_base = gateway[0].getsockname()[1]
        numbers = iter([one.getsockname()[1] for one in own])
        self._ports = {
            node_id: NodePorts(next(numbers), next(numbers), next(numbers), self._gateway_base + 1 + node_id)
            for node_id in self.node_ids
        }
        cluster_id = new_cluster_id()
        self._nodes = {
            node_id: KafkaNode(
                node_id,
                self._ports,
                cluster_id,
                self._properties,
                self._jvm_options,
                self._directory / str(node_id),
                self._gateway_protocol,
            )
            for node_id in self.node_ids
        }

    def _remove(self) -> None:
        self._kill_all()  # nobody reads their data any more
        self._release_ports()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _kill_all(self) -> None:
        for node in self._nodes.values():
            node.kill()

    def _release_ports(self) -> None:
        for held in self._held:
            held.close()
        self._held = []

    # -- what it holds -------------------------------------------------------------------------------------------------

    def partition(self, topic: str, partition: int) -> raw_wire.PartitionState:
        """Of any broker that runs; KeyError if it knows no such partition."""
        return raw_wire.partitions(self._any_address(), topic)[partition]

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads a partition; waits while there is none."""

        def leader() -> int | None:
            with contextlib.suppress(OSError, KeyError):
                found = self.partition(topic, partition).leader
                return found if found in self._nodes else None
            return None

        return eventually(leader, f"{topic}-{partition} has a leader") or 0

    def await_in_sync(self, topic: str, partition: int) -> None:
        """Returns when every replica is in sync."""

        def all_there() -> bool:
            with contextlib.suppress(OSError, KeyError):
                state = self.partition(topic, partition)
                return len(state.in_sync) == len(state.replicas)
            return False

        eventually(all_there, f"every replica of {topic}-{partition} is in sync")

    def _any_address(self) -> tuple[str, int]:
        return next(node.address for node in self._nodes.values() if node.is_running)
