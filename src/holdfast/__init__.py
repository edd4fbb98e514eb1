"""Holdfast: Kafka consumer groups that hold still."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.extras import CLIENT, needed_for
from holdfast.version import VERSION as __version__

if TYPE_CHECKING:
    from holdfast.assignors import Assignor as Assignor
    from holdfast.client.admin import Admin as Admin
    from holdfast.client.consumer import Consumer as Consumer
    from holdfast.client.errors import HoldfastError as HoldfastError
    from holdfast.client.member import Member as Member
    from holdfast.client.pool import Pool as Pool
    from holdfast.client.single_writer import SingleWriter as SingleWriter
    from holdfast.client.worker_pool import WorkerPool as WorkerPool

_HOMES = {
    "Admin": "holdfast.client.admin",
    "Assignor": "holdfast.assignors",
    "Consumer": "holdfast.client.consumer",
    "HoldfastError": "holdfast.client.errors",
    "Member": "holdfast.client.member",
    "Pool": "holdfast.client.pool",
    "SingleWriter": "holdfast.client.single_writer",
    "WorkerPool": "holdfast.client.worker_pool",
}

__all__ = [
    "Admin",
    "Assignor",
    "Consumer",
    "HoldfastError",
    "Member",
    "Pool",
    "SingleWriter",
    "WorkerPool",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """The client is imported when it is first used, because a broker does not need it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    with needed_for(f"holdfast.{name}", CLIENT):
        return getattr(import_module(home), name)
