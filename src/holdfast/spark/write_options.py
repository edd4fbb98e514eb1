"""The options of a write, by the names of Spark's own Kafka sink.

Options that begin with `kafka.` are producer settings, by librdkafka's names. They are tried on the driver, without a
connection, so that a wrong one ends the query before any task runs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import confluent_kafka

from holdfast.client import security
from holdfast.client.config import boolean, whole_number
from holdfast.client.errors import ConfigError
from holdfast.spark.first_contact import FIRST_CONTACT_MS
from holdfast.spark.options import KAFKA, split

_OWN: Final = ("topic", "includeHeaders")
_SPARK_OPTIONS: Final = ("checkpointLocation", "queryName")
"""Spark's own options, which it passes with the others."""

DELIVERY_TIMEOUT: Final = "delivery.timeout.ms"
MAX_BLOCK: Final = "max.block.ms"

_DEFAULTS: Final = {
    "client.id": "holdfast-spark",
    "enable.idempotence": "true",
    "acks": "all",
    # As in Java, so that a key has the same partition with every client. librdkafka's default is different.
    "partitioner": "murmur2_random",
    DELIVERY_TIMEOUT: "120000",
    # The maximum size of a task's records in flight. librdkafka's default is a gigabyte for each worker process.
    "queue.buffering.max.kbytes": "65536",
    # Connection errors are in the error of the task, not twenty times a second in the executor's log.
    "log_level": "2",
}
_MAX_BLOCK_MS: Final = 60_000
"""Java's default: how long a producer may take to reach the brokers. librdkafka has no such setting."""

_UNSUPPORTED: Final = {
    "key.serializer": "the column key is written as it is; cast it to string or binary",
    "value.serializer": "the column value is written as it is; cast it to string or binary",
    "transactional.id": "each task writes for itself, at least once, without a transaction",
    "group.id": "a sink is in no group; the option is for reading",
    "group.instance.id": "a sink is in no group; the option is for reading",
    "group.bootstrap.servers": "a sink is in no group; the option is for reading",
    "delivery.report.only.error": "the sink counts the reports itself",
    "interceptor.classes": "there is no Java in this sink",
}
_PYTHON_ONLY: Final = frozenset({"on_delivery", "logger", "default.topic.config", "plugin.library.paths"})
_IN_JAVA: Final = {
    "max.request.size": "message.max.bytes",
    "buffer.memory": "queue.buffering.max.kbytes",
    "partitioner.class": "partitioner",
    "metadata.max.idle.ms": "metadata.max.age.ms",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.jaas.config": "sasl.username and kafka.sasl.password",
}
_OFTEN_GIVEN: Final = (
    "acks",
    "batch.num.messages",
    "batch.size",
    "bootstrap.servers",
    "client.id",
    "compression.level",
    "compression.type",
    DELIVERY_TIMEOUT,
    "enable.idempotence",
    "linger.ms",
    MAX_BLOCK,
    "max.in.flight.requests.per.connection",
    "message.max.bytes",
    "metadata.max.age.ms",
    "partitioner",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retries",
    "retry.backoff.ms",
    "socket.timeout.ms",
    *sorted(security.NAMES - {"oauth_cb"}),
)
"""Candidates for the suggestion after an unknown name."""

_UNKNOWN_TO_BOTH: Final = "holdfast.unknown.setting"
_UNKNOWN: Final = re.compile(r'No such configuration property: "(.+)"')


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings with which a task creates a producer."""

    librdkafka: dict[str, str] = field(repr=False)  # with its secrets
    delivery_timeout_s: float = 120.0
    """librdkafka fails a record after this time at the latest."""
    max_block_s: float = _MAX_BLOCK_MS / 1000
    """How long a new producer may take to reach the brokers."""
    first_contact_s: float = FIRST_CONTACT_MS / 1000
    """The same, if the application has not reached them before."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    producer: ProducerSettings
    topic: str | None
    """The topic of all records; None if the column `topic` has it."""


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Raises ConfigError, which names the option."""
    own, kafka = split(options, (*_OWN, *_SPARK_OPTIONS))
    # Spark's sink accepts it too, and writes headers if there is a column `headers`.
    boolean(own, "includeHeaders", False)
    topic = own.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("option topic is empty: give the name of the topic, or leave it out and give a column topic")
    return WriteOptions(_producer_settings({name: str(value) for name, value in kafka.items()}), topic)


def _producer_settings(given: dict[str, str]) -> ProducerSettings:
    for name in given:
        if name in _UNSUPPORTED:
            raise ConfigError(f"option {KAFKA}{name} cannot be set: {_UNSUPPORTED[name]}")
        if name in _PYTHON_ONLY or name.endswith("_cb"):
            raise ConfigError(f"option {KAFKA}{name} cannot be set: an option is text")
    if "message.timeout.ms" in given:  # librdkafka's first name for it
        if DELIVERY_TIMEOUT in given:
            raise ConfigError(
                f"option {KAFKA}{DELIVERY_TIMEOUT} is given twice, once as {KAFKA}message.timeout.ms: leave out one"
            )
        given = {DELIVERY_TIMEOUT if name == "message.timeout.ms" else name: value for name, value in given.items()}
    settings = {**_DEFAULTS, **given}
    max_block_ms = _number(settings, MAX_BLOCK, _MAX_BLOCK_MS, 0)
    first_contact_ms = max_block_ms if MAX_BLOCK in given else FIRST_CONTACT_MS
    settings.pop(MAX_BLOCK, None)
    # Without a limit librdkafka would hold records, and Spark's task with them, forever.
    delivery_timeout_ms = _number(settings, DELIVERY_TIMEOUT, 0, 1)
    _try_each(settings)
    _try_together(settings)
    return ProducerSettings(settings, delivery_timeout_ms / 1000, max_block_ms / 1000, first_contact_ms / 1000)


def _number(settings: Mapping[str, str], name: str, default: int, minimum: int) -> int:
    try:
        return whole_number(settings, name, default, minimum)
    except ConfigError as error:
        raise ConfigError(f"option {KAFKA}{error}") from error


def _try_each(settings: Mapping[str, str]) -> None:
    """Tries each setting alone: librdkafka's error for several does not always name the option."""
    for name, value in settings.items():
        # The unknown name ends the attempt before a producer is created, but after the setting was checked.
        message = _error_text({name: value, _UNKNOWN_TO_BOTH: ""})
        unknown = _UNKNOWN.search(message)
        if unknown is None:
            raise ConfigError(f"option {KAFKA}{name} cannot be used: {message}")
        if unknown[1] != _UNKNOWN_TO_BOTH:
            raise ConfigError(f"unknown option '{KAFKA}{name}': {_advice(name)}")


def _try_together(settings: Mapping[str, str]) -> None:
    """Some settings need others. Without servers nothing is connected; certificates may exist on the executors only."""
    alone = {
        name: value
        for name, value in settings.items()
        if name not in ("bootstrap.servers", "metadata.broker.list", "debug")
        and not name.startswith(("ssl.", "sasl.", "security.", "enable.ssl", "enable.sasl", "https."))
    }
    message = _error_text({**alone, "log_level": "0"})
    if message:
        raise ConfigError(f"options that begin with {KAFKA!r} do not work together: {message}")


def _error_text(settings: Mapping[str, str]) -> str:
    """librdkafka's error for these settings; empty if it accepts them."""
    try:
        confluent_kafka.Producer(dict(settings))
    except confluent_kafka.KafkaException as error:
        message = str(error.args[0].str()).strip()
    except (TypeError, ValueError) as error:
        message = str(error)
    else:
        return ""
    return message.removeprefix("Failed to create producer: ").replace("`", "")


def _advice(name: str) -> str:
    if name in _IN_JAVA:
        return f"it is Java's, and here it is {KAFKA}{_IN_JAVA[name]}"
    nearest: list[Any] = difflib.get_close_matches(name, _OFTEN_GIVEN, 1, 0.6)
    if nearest:
        return f"did you mean '{KAFKA}{nearest[0]}'?"
    return "options that begin with kafka. are settings of librdkafka's producer"
