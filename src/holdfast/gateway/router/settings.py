"""The settings of the router."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final

from holdfast.client.addresses import Address

MAX_AUTHENTICATION_BYTES: Final = 512 * 1024
"""The size limit of requests that the router itself reads: ApiVersions, and SASL's. Kafka's default of
`sasl.server.max.receive.size`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    listen: Address
    """The bootstrap port. Broker N has the port that is N + 1 higher."""
    advertised: Address | None = None
    """How clients reach the bootstrap port, if it is not `listen`."""
    upstream_tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    upstream_uses_sasl: bool = False
    """The listener of Kafka's brokers authenticates clients by SASL."""
    max_connections: int = (1 << 31) - 1
    request_max_bytes: int = 100 * 1024 * 1024
    """Kafka's `socket.request.max.bytes`."""
    held_request_max_bytes: int = 256 * 1024 * 1024
    """The memory of half-received requests that the gateway answers itself, over all connections together."""
    max_idle_ms: int = 10 * 60 * 1000
    """Kafka's `connections.max.idle.ms`. A negative value is no limit."""
    authentication_timeout_ms: int = 10_000
    """For TLS and SASL together."""
    connect_timeout_ms: int = 10_000
    linger_ms: int = 5_000
    """How long Kafka's end of a connection is kept after the client has closed its own."""
    drain_ms: int = 5_000
    """How long a shutdown waits for responses."""
