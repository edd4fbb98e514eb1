"""Configs described and altered on Apache Kafka and on Holdfast: the same answers, but for what is listed here."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from holdfast.wire.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from holdfast.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.kafka_parity.test_admin_like_kafka import Conversation, Question, normalised
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
ME: Final = "1"
ALL_BROKERS: Final = ""
KAFKA_KNOWS_WITHIN_S: Final = 20.0

_THROTTLED: Final = "leader.replication.throttled.replicas=0:1,x"
DIFFERENCES: Final = {
    "DescribeConfigs: unknown type": "Kafka answers with a text for every bad request, Holdfast says what is bad",
    "IncrementalAlterConfigs: unknown operation": "Kafka answers -1 without a word",
    f"IncrementalAlterConfigs: {_THROTTLED}": "the same error in other words",
    f"AlterConfigs: {_THROTTLED}": "the same error in other words",
    "IncrementalAlterConfigs: no.such.config=1 of this one": "Kafka keeps what nobody knows, for plug-ins",
    "IncrementalAlterConfigs: no.such.config=1 of all": "Kafka keeps what nobody knows, for plug-ins",
}
"""Label of a question → why the answers differ."""

Change = tuple[str, int, str | None]


def describe(label: str, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True) -> Question:
    resource = DescribeConfigsResource(kind, name, list(keys) or None)
    return f"DescribeConfigs: {label}", DescribeConfigsRequest([resource], synonyms, False), version


def alter(label: str, kind: int, name: str, *configs: tuple[str, str | None], validate_only: bool = False) -> Question:
    wanted = [AlterableConfig(key, value) for key, value in configs]
    return f"AlterConfigs: {label}", AlterConfigsRequest([AlterConfigsResource(kind, name, wanted)], validate_only), 2


def change(label: str, kind: int, name: str, *changes: Change, validate_only: bool = False) -> Question:
    wanted = [IncrementalAlterableConfig(key, operation, value) for key, operation, value in changes]
    resource = IncrementalAlterConfigsResource(kind, name, wanted)
    return f"IncrementalAlterConfigs: {label}", IncrementalAlterConfigsRequest([resource], validate_only), 1


def of_topics(talk: Conversation) -> Iterator[Question]:
    name = talk.other
    for version in range(1, 5):
        yield describe(f"a topic v{version}", TOPIC, name, version=version)
    yield describe("one config", TOPIC, name, "retention.ms", "no.such")
    yield describe("unknown topic", TOPIC, "nope")
    yield describe("bad topic name", TOPIC, "a b")
    yield describe("no topic name", TOPIC, "")
    yield describe("unknown type", 77, name)
    yield change("set", TOPIC, name, ("retention.ms", SET, "100000"), ("max.message.bytes", SET, "2000"))
    yield describe("after set", TOPIC, name, "retention.ms", "max.message.bytes")
    yield change("validate only", TOPIC, name, ("retention.ms", SET, "5"), validate_only=True)
    yield change("delete", TOPIC, name, ("max.message.bytes", DELETE, None))
    yield change("delete what is not set", TOPIC, name, ("segment.ms", DELETE, None))
    yield change("append", TOPIC, name, ("cleanup.policy", APPEND, "compact"))
    yield describe("after append", TOPIC, name, "retention.ms", "max.message.bytes", "cleanup.policy")
    yield change("subtract", TOPIC, name, ("cleanup.policy", SUBTRACT, "delete"))
    yield describe("after subtract", TOPIC, name, "cleanup.policy")
    yield change("append to a number", TOPIC, name, ("retention.ms", APPEND, "1"))
    yield change("subtract from a text", TOPIC, name, ("compression.type", SUBTRACT, "gzip"))
    yield change("unknown operation", TOPIC, name, ("retention.ms", 9, "1"))
    yield change("the same twice", TOPIC, name, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    yield change("nothing", TOPIC, name)
    for key, value in BAD_TOPIC_VALUES:
        yield change(f"{key}={value}", TOPIC, name, (key, SET, value))
        yield alter(f"{key}={value}", TOPIC, name, (key, value), validate_only=True)
    yield change("of a topic that is not there", TOPIC, "nope", ("retention.ms", SET, "1"))
    yield change("bad value of a topic that is not there", TOPIC, "nope", ("retention.ms", SET, "x"))
    yield change("of a bad name", TOPIC, "a b", ("retention.ms", SET, "1"))
    yield change("of no name", TOPIC, "", ("retention.ms", SET, "1"))
    yield change("of an unknown type", 77, name, ("retention.ms", SET, "1"))
    yield alter("a set", TOPIC, name, ("segment.bytes", "2000000"), ("flush.ms", "5000"))
    yield describe("after a set", TOPIC, name, "retention.ms", "segment.bytes", "flush.ms", "cleanup.policy")
    yield alter("null", TOPIC, name, ("retention.ms", None))
    yield alter("nothing", TOPIC, name)
    yield describe("after all", TOPIC, name)


BAD_TOPIC_VALUES: Final[Sequence[tuple[str, str]]] = (
    ("no.such.config", "1"),
    ("retention.ms", "abc"),
    ("retention.ms", "-2"),
    ("retention.ms", ""),
    ("retention.ms", "9223372036854775808"),
    ("segment.bytes", "1"),
    ("segment.bytes", "2147483648"),
    ("cleanup.policy", "nonsense"),
    ("cleanup.policy", "delete,delete"),
    ("compression.type", "brotli"),
    ("min.cleanable.dirty.ratio", "1.5"),
    ("min.cleanable.dirty.ratio", "x"),
    ("message.timestamp.type", "Now"),
    ("preallocate", "maybe"),
    ("unclean.leader.election.enable", "yes"),
    ("remote.storage.enable", "true"),
    ("leader.replication.throttled.replicas", "0:1,x"),
    ("min.compaction.lag.ms", "9223372036854775807"),
    ("max.compaction.lag.ms", "0"),
    ("file.delete.delay.ms", "-1"),
    ("index.interval.bytes", "-1"),
    ("segment.index.bytes", "3"),
    ("delete.retention.ms", "-1"),
    ("segment.ms", "0"),
)


def of_brokers(talk: Conversation) -> Iterator[Question]:
    key, other = "log.retention.ms", "log.cleaner.backoff.ms"
    yield describe("of all brokers", BROKER, ALL_BROKERS)
    yield describe("of another broker", BROKER, "99")
    yield describe("of a broker that is no number", BROKER, "abc")
    yield change("for all brokers", BROKER, ALL_BROKERS, (key, SET, "200000"))
    yield describe("of all brokers after a change", BROKER, ALL_BROKERS)
    yield describe("of this one after it", BROKER, ME, key)
    yield change("for this one", BROKER, ME, (key, SET, "300000"), (other, SET, "20000"))
    yield describe("of this one", BROKER, ME, key, other)
    yield describe("of a topic below both", TOPIC, talk.dotted, "retention.ms")
    yield change("taken back", BROKER, ME, (key, DELETE, None))
    yield describe("of a topic below one", TOPIC, talk.dotted, "retention.ms")
    yield change("validate only", BROKER, ME, (key, SET, "1"), validate_only=True)
    yield alter("all of this one", BROKER, ME, ("log.cleaner.threads", "2"))
    yield describe("of this one after all", BROKER, ME, key, other, "log.cleaner.threads")
    yield change("taken back for all", BROKER, ALL_BROKERS, (key, DELETE, None))
    yield alter("none of this one", BROKER, ME)
    for name, value in BAD_BROKER_VALUES:
        yield change(f"{name}={value} of this one", BROKER, ME, (name, SET, value))
        yield change(f"{name}={value} of all", BROKER, ALL_BROKERS, (name, SET, value))
        yield change(f"{name} of this one taken back", BROKER, ME, (name, DELETE, None))
        yield change(f"{name} of all taken back", BROKER, ALL_BROKERS, (name, DELETE, None))
    yield change("append to a list", BROKER, ME, ("log.cleanup.policy", APPEND, "compact"))
    yield describe("a list after append", BROKER, ME, "log.cleanup.policy")
    yield change("list taken back", BROKER, ME, ("log.cleanup.policy", DELETE, None))
    yield from of_min_insync_replicas(talk)
    yield change("of another broker", BROKER, "99", (key, SET, "1"))
    yield change("of a broker that is no number", BROKER, "abc", (key, SET, "1"))
    yield change("the same twice", BROKER, ME, (key, SET, "1"), (key, SET, "2"))
    yield describe("at the end", BROKER, ME, key, other, "log.cleaner.threads", "message.max.bytes")


def of_min_insync_replicas(talk: Conversation) -> Iterator[Question]:
    """KIP-966: Kafka sets it for the whole cluster when it formats one, and calls that an alteration."""
    key = "min.insync.replicas"
    yield describe("min.insync.replicas of this one", BROKER, ME, key)
    yield describe("min.insync.replicas of a topic", TOPIC, talk.dotted, key)
    yield change("min.insync.replicas of this one", BROKER, ME, (key, SET, "2"))
    yield change("min.insync.replicas of all", BROKER, ALL_BROKERS, (key, SET, "2"))
    yield describe("min.insync.replicas of a topic after it", TOPIC, talk.dotted, key)
    yield change("min.insync.replicas of all taken back", BROKER, ALL_BROKERS, (key, DELETE, None))
    yield alter("nothing for all", BROKER, ALL_BROKERS)
    yield change("min.insync.replicas as it was", BROKER, ALL_BROKERS, (key, SET, "1"))
    yield describe("min.insync.replicas in the end", BROKER, ALL_BROKERS)


BAD_BROKER_VALUES: Final[Sequence[tuple[str, str]]] = (
    ("node.id", "2"),
    ("log.dirs", "/elsewhere"),
    ("auto.create.topics.enable", "false"),
    ("socket.request.max.bytes", "1000000"),
    ("no.such.config", "1"),
    ("log.retention.ms", "abc"),
    ("log.cleaner.backoff.ms", "-1"),
    ("log.cleanup.policy", "nonsense"),
    ("max.connections", "-1"),
    ("num.io.threads", "0"),
)


def answers(talk: Conversation, question: Question) -> Any:
    _, message, version = question
    return normalised(talk.ask(message, version))


def settled(talk: Conversation, question: Question, wanted: Any = None) -> Any:
    """Kafka answers an alteration before every part of it knows: a description is asked again until it stays, and, for
    a while, until it stays as is wanted."""
    label = question[0]
    if not label.startswith("DescribeConfigs"):
        return answers(talk, question)
    deadline = time.monotonic() + (0 if wanted is None or label in DIFFERENCES else KAFKA_KNOWS_WITHIN_S)
    before: list[Any] = []

    def stays() -> Any:
        before.append(answers(talk, question))
        is_stable = before[-5:] == before[-1:] * 5
        return before[-1] if is_stable and (before[-1] == wanted or time.monotonic() > deadline) else None

    return eventually(stays, "the answer stays the same")


def compared(kafka: Conversation, ours: Conversation, subject: Any) -> dict[str, tuple[Any, Any]]:
    different: dict[str, tuple[Any, Any]] = {}
    for to_kafka, to_ours in zip(subject(kafka), subject(ours), strict=True):
        found = settled(ours, to_ours)
        expected = settled(kafka, to_kafka, found)
        if expected != found:
            different[to_kafka[0]] = expected, found
    return different


@pytest.mark.parametrize("subject", [of_topics, of_brokers])
def test_configs_are_described_and_altered_like_kafkas(
    apache_kafka: ApacheKafka, holdfast: HoldfastBroker, subject: Any
) -> None:
    run = f"configs-{uuid.uuid4().hex[:8]}"

    different = compared(Conversation(apache_kafka, run), Conversation(holdfast, run), subject)

    unexpected = {label: answers for label, answers in different.items() if label not in DIFFERENCES}
    assert not unexpected
    asked = {label for label, _, _ in subject(Conversation(holdfast, run + "-again"))}
    assert set(different) == asked & set(DIFFERENCES), "a difference that is listed is none any more"


def test_what_can_be_altered_while_it_runs_is_what_kafka_says(
    apache_kafka: ApacheKafka, holdfast: HoldfastBroker
) -> None:
    run = f"configs-{uuid.uuid4().hex[:8]}"
    found: list[dict[str, tuple[Any, ...]]] = []
    for server in (apache_kafka, holdfast):
        _, message, version = describe("this broker", BROKER, ME)
        (result,) = Conversation(server, run).ask(message, version).results
        found.append({one.name: (one.read_only, one.config_type, one.is_sensitive) for one in result.configs})

    kafka, ours = found
    guards = re.compile(r"(ssl|sasl|principal)\.|listeners?\b|config\.providers")
    assert {name: ours.get(name) for name in kafka if not guards.match(name)} == {
        name: seen for name, seen in kafka.items() if not guards.match(name)
    }
    # What secures the listeners is read at the start (docs/differences.md, 11).
    assert all(ours[name][0] for name in kafka if guards.match(name))
