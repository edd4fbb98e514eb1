"""``holdfast gateway`` as a user starts it: a process of its own in front of a cluster of Apache Kafka."""

import contextlib
import re
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.held_ports import held_port_range
from tests.support.holdfast_broker import HOST, HoldfastBroker
from tests.support.kafka_cluster import KafkaCluster

_END_TIMEOUT_S = 60


class GatewayProcess(HoldfastBroker):
    """Context manager around one gateway. Kafka outlives it, and with Kafka the state of its groups.

    ``settings`` become ``--set name=value``, ``options`` are added to the command line as they are. It listens where
    the brokers of the cluster advertise it. With ``rewriting`` it connects to the listener with the brokers' own
    addresses instead, and listens on ports of its own: several such gateways can run at a time.
    """

    _ready = re.compile(r"^holdfast gateway listening on (\S+):(\d+)$", re.MULTILINE)

    def __init__(
        self,
        kafka: KafkaCluster,
        settings: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        *,
        rewriting: bool = False,
    ) -> None:
        super().__init__(settings)
        self.kafka = kafka
        self._options = list(options)
        self._own_ports: list[socket.socket] = []
        if rewriting:
            self._own_ports = held_port_range(2 + len(kafka.node_ids))
            self._upstream, self._listen = kafka.bootstrap, (HOST, self._own_ports[0].getsockname()[1])
        else:
            self._upstream, self._listen = kafka.gateway_bootstrap, kafka.gateway_address
        self.data_dir: Path = kafka.data_dir(kafka.node_ids[0])

    def address_of(self, node_id: int) -> tuple[str, int]:
        """Where clients reach this broker."""
        host, port = self._listen
        return host, port + 1 + node_id

    def await_end(self, within_s: float = _END_TIMEOUT_S) -> int:
        """The exit code of a gateway that stops by itself; its last words are in `log_text`."""
        try:
            exit_code = self._running().wait(within_s)
        except subprocess.TimeoutExpired:
            raise self._failed(f"the gateway did not end within {within_s} s") from None
        self._end(signal.SIGKILL)
        return exit_code

    def _command(self) -> list[str]:
        host, port = self._listen
        return self._holdfast(["gateway", "--kafka", self._upstream, "--listen", f"{host}:{port}", *self._options])

    def _hold_port(self) -> None:
        """They are held all the time, here or by the cluster."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as after:
            for held in self._own_ports:
                after.callback(held.close)
            super().__exit__(kind, error, traceback)
