"""The options of a write, by the names of Spark's own Kafka sink.

What begins with `kafka.` are settings of the producer, by librdkafka's names. They are tried out on the driver, without
a connection, so that a wrong one ends the query before any task runs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import confluent_kafka

from holdfast.client import security
from holdfast.client.config import truth, whole_number
from holdfast.client.errors import ConfigError
from holdfast.spark.options import KAFKA, split

_OWN: Final = ("topic", "includeHeaders")
_SPARKS: Final = ("checkpointLocation", "queryName")
"""Spark's own; it hands them over with the rest."""

DELIVERY_TIMEOUT: Final = "delivery.timeout.ms"
MAX_BLOCK: Final = "max.block.ms"

_DEFAULTS: Final = {
    "client.id": "holdfast-spark",
    "enable.idempotence": "true",
    "acks": "all",
    # As in Java: a key goes to the same partition, whoever writes it. librdkafka's own choice is another one.
    "partitioner": "murmur2_random",
    DELIVERY_TIMEOUT: "120000",
    # How much a task may have under way. librdkafka's own limit is a gigabyte, and that for each worker process.
    "queue.buffering.max.kbytes": "65536",
    # What befalls the connections is in the error of the task, not twenty times a second in the executor's log.
    "log_level": "2",
}
_MAX_BLOCK_MS: Final = 60_000
"""Java's default: how long the first contact with the brokers may take. librdkafka has no such setting."""

_NOT_HERE: Final = {
    "key.serializer": "the column key is written as it is; cast it to string or binary",
    "value.serializer": "the column value is written as it is; cast it to string or binary",
    "transactional.id": "each task writes for itself, at least once, without a transaction",
    "group.id": "a sink is in no group; the option is for reading",
    "group.instance.id": "a sink is in no group; the option is for reading",
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
"""Among these the one nearest to an unknown name is looked for."""

_NOBODYS: Final = "holdfast.nobody.knows.this"
_UNKNOWN: Final = re.compile(r'No such configuration property: "(.+)"')


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What a task needs to get a producer."""

    librdkafka: dict[str, str] = field(repr=False)  # with its secrets
    delivery_timeout_s: float = 120.0
    """After this at the latest librdkafka gives a record up."""
    max_block_s: float = _MAX_BLOCK_MS / 1000
    """For how long a new producer looks for the brokers."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    producer: ProducerSettings
    topic: str | None
    """Where all records go; None if the column `topic` says it."""


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Raises ConfigError that names the option."""
    own, kafka = split(options, (*_OWN, *_SPARKS))
    # Spark's sink takes it too, and goes by whether there is a column `headers`.
    truth(own, "includeHeaders", False)
    topic = own.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("option topic is empty: give the name of the topic, or leave it out and give a column topic")
    return WriteOptions(_producer_settings({name: str(value) for name, value in kafka.items()}), topic)


def _producer_settings(given: dict[str, str]) -> ProducerSettings:
    for name in given:
        if name in _NOT_HERE:
            raise ConfigError(f"option {KAFKA}{name} cannot be set: {_NOT_HERE[name]}")
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
    settings.pop(MAX_BLOCK, None)
    # Without an end librdkafka would hold records, and Spark's task with them, for ever.
    delivery_timeout_ms = _number(settings, DELIVERY_TIMEOUT, 0, 1)
    _try_each(settings)
    _try_together(settings)
    return ProducerSettings(settings, delivery_timeout_ms / 1000, max_block_ms / 1000)


def _number(settings: Mapping[str, str], name: str, default: int, least: int) -> int:
    try:
        return whole_number(settings, name, default, least)
    except ConfigError as error:
        raise ConfigError(f"option {KAFKA}{error}") from error


def _try_each(settings: Mapping[str, str]) -> None:
    """Ask librdkafka about each setting alone: what it says of one of several does not always name the option."""
    for name, value in settings.items():
        # The name that nobody knows ends the attempt before a producer is made, but after the setting was looked at.
        said = _complaint({name: value, _NOBODYS: ""})
        unknown = _UNKNOWN.search(said)
        if unknown is None:
            raise ConfigError(f"option {KAFKA}{name} cannot be used: {said}")
        if unknown[1] != _NOBODYS:
            raise ConfigError(f"unknown option '{KAFKA}{name}': {_advice(name)}")


def _try_together(settings: Mapping[str, str]) -> None:
    """Some settings need others. Without servers nothing is connected; certificates may lie on the executors alone."""
    alone = {
        name: value
        for name, value in settings.items()
        if name not in ("bootstrap.servers", "metadata.broker.list", "debug")
        and not name.startswith(("ssl.", "sasl.", "security.", "enable.ssl", "enable.sasl", "https."))
    }
    said = _complaint({**alone, "log_level": "0"})
    if said:
        raise ConfigError(f"options that begin with {KAFKA!r} do not go together: {said}")


def _complaint(settings: Mapping[str, str]) -> str:
    """What librdkafka says against these settings; empty if it takes them."""
    try:
        confluent_kafka.Producer(dict(settings))
    except confluent_kafka.KafkaException as error:
        said = str(error.args[0].str()).strip()
    except (TypeError, ValueError) as error:
        said = str(error)
    else:
        return ""
    return said.removeprefix("Failed to create producer: ").replace("`", "")


def _advice(name: str) -> str:
    if name in _IN_JAVA:
        return f"it is Java's, and here it is {KAFKA}{_IN_JAVA[name]}"
    nearest: list[Any] = difflib.get_close_matches(name, _OFTEN_GIVEN, 1, 0.6)
    if nearest:
        return f"did you mean '{KAFKA}{nearest[0]}'?"
    return "what begins with kafka. is a setting of librdkafka's producer"
