"""The first contact of a query with the brokers. It has a shorter timeout than later requests.

A wrong address is a mistake that the user waits for. Later, the same address has worked, so a broker that does not
answer is restarting, and the query waits for `kafka.default.api.timeout.ms` or `kafka.max.block.ms`, by default for a
minute.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from holdfast.client.cluster_client import ClusterClient

FIRST_CONTACT_MS: Final = 15_000
API_TIMEOUT: Final = "default.api.timeout.ms"
_LOCAL_DIRECTORIES: Final = "SPARK_LOCAL_DIRS"
"""Spark sets it for its Python processes: directories of the application on this machine, which it deletes at the
end."""


def reach_a_broker(network: ClusterClient, kafka: Mapping[str, Any]) -> None:
    """Connects to any broker. Raises ConnectionFailed after 15 s, or after `kafka.default.api.timeout.ms` if the user
    has set it. `kafka` are the settings without their prefix."""
    network.any(network.clock.now() + int(kafka.get(API_TIMEOUT, FIRST_CONTACT_MS)) / 1000)


def was_reached(servers: str) -> bool:
    """Whether a process of this application on this machine has reached these brokers before."""
    marker = _marker(servers)
    return marker is not None and marker.exists()


def mark_reached(servers: str) -> None:
    marker = _marker(servers)
    if marker is not None:
        with suppress(OSError):  # without the marker, the next process has its own first contact
            marker.touch()


def _marker(servers: str) -> Path | None:
    directory = os.environ.get(_LOCAL_DIRECTORIES, "").partition(",")[0]
    if not directory:
        return None
    return Path(directory, f"holdfast-reached-{hashlib.sha256(servers.encode()).hexdigest()[:16]}")
