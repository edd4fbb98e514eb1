"""Holdfast: Kafka consumer groups that hold still."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_OF_THE_CLIENT = ("confluent_kafka", "numpy")

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
    """The client is imported when it is first asked for: a broker needs none of it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name not in _OF_THE_CLIENT:
            raise
        raise ImportError(f"holdfast.{name} needs {error.name}: pip install 'holdfast[client]'") from error
