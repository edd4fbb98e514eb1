"""The environment of the client: a clock, and a transport to each broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.client.clock import SYSTEM_CLOCK, Clock
from holdfast.client.transport import OpenTransport, SocketTransport


@dataclass(frozen=True, slots=True)
class Runtime:
    clock: Clock
    open_transport: OpenTransport


SYSTEM: Final = Runtime(SYSTEM_CLOCK, SocketTransport)
"""The system clock, and TCP or TLS."""
