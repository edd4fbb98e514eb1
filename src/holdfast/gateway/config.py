"""The configuration of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from holdfast.broker.config.broker import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    kafka: str
    """The addresses of Kafka's brokers: HOST:PORT or ID=HOST:PORT, with commas."""
    listen: tuple[str, int]
    """The bootstrap port. Broker N has the port that is N + 1 higher."""
    advertise: tuple[str, int]
    """How clients reach `listen`."""
    client_properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Towards Kafka, with librdkafka's names, e.g. `security.protocol`."""
    broker_config: BrokerConfig = field(default_factory=BrokerConfig)
    """Groups, connections and TLS towards clients, with the names of Kafka's broker configs."""
    create_state: bool = False
    """Create the state topic although it seems to have existed before."""
    hold_names: bool = True
    """Hold the names of groups in Kafka's own coordinator, and adopt groups from it."""
