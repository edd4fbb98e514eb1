"""The consumers of an executor. They are kept from one batch to the next, so that no task waits for a connection.

A Spark worker runs many tasks, one at a time. Each task leases a consumer and returns it. A leased consumer is used by
only one task. There are two kinds: `RangeFetcher` is Holdfast's own client, and `RangeConsumer` is librdkafka's.
"""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TypeVar, cast

from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.errors import AuthenticationFailed, ConfigError

MAX_IDLE: Final = 4
"""Idle consumers per process; each has threads and connections. More than one only if several queries use the
worker."""

_DEFAULTS: Final = {
    "client.id": "holdfast-spark",
    "group.id": "holdfast-spark",  # librdkafka requires one; it is never joined
    # When the queue is full librdkafka pauses for this long, by default for a second: five times slower.
    "fetch.queue.backoff.ms": 10,
    # The planned records already exist. A broker that waits for more would delay the next batch.
    "fetch.wait.max.ms": 2,
    "fetch.error.backoff.ms": 100,
    "check.crcs": False,
    # An idle consumer would fill the executor's log while a broker is down; errors that end a task are raised anyway.
    "log_level": 2,
}


def consumer_config(kafka: Mapping[str, Any]) -> ConsumerConfig:
    """The settings of a consumer that is not a member of a group. Raises ConfigError, which names the option."""
    try:
        return ConsumerConfig.read({**_DEFAULTS, **kafka}, {})
    except ConfigError as error:
        raise ConfigError(f"options that begin with 'kafka.': {error}") from error


class Leased(Protocol):
    """A connection to the brokers that tasks use one after another."""

    def reset(self) -> None:
        """Resets it to an unused state."""

    def close(self) -> None: ...


L = TypeVar("L", bound=Leased)
_Settings = tuple[int, str, tuple[tuple[str, str], ...]]
_idle: Final[OrderedDict[_Settings, Leased]] = OrderedDict()
"""The key includes the process id: a forked child inherits the memory of a consumer, but not its threads."""


@contextmanager
def lease(kafka: Mapping[str, Any], kind: Callable[[Mapping[str, Any]], L]) -> Iterator[L]:
    """An idle one of this kind and with these settings, or a new one."""
    settings = _settings(kafka, kind)
    idle = _idle.pop(settings, None)
    consumer = kind(kafka) if idle is None else cast(L, idle)
    try:
        yield consumer
    except Exception:
        consumer.close()  # its state is unknown
        raise
    except BaseException:  # the reader was closed early, as with a limit
        _release(settings, consumer)
        raise
    _release(settings, consumer)


def _settings(kafka: Mapping[str, Any], kind: Callable[..., Leased]) -> _Settings:
    return os.getpid(), kind.__qualname__, tuple(sorted((name, str(value)) for name, value in kafka.items()))


def _release(settings: _Settings, consumer: Leased) -> None:
    consumer.reset()
    if settings in _idle:
        consumer.close()
        return
    _idle[settings] = consumer
    mine = [one for one in _idle if one[0] == os.getpid()]
    for eldest in mine[:-MAX_IDLE]:
        _idle.pop(eldest).close()


@atexit.register
def close_all() -> None:
    """Closes the idle consumers of this process, not those inherited by fork."""
    for settings in [one for one in _idle if one[0] == os.getpid()]:
        with suppress(RuntimeError):
            _idle.pop(settings).close()


def not_accepted(reason: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"the broker does not accept the executor: {reason}; see the options kafka.security.protocol, kafka.sasl.* and "
        "kafka.ssl.*, and whether the files they name are on the executors"
    )
