"""Kafka Streams: an application with state, in two instances, one of which is killed and comes back.

The instances count how often each word comes, with a repartition topic, a changelog topic and a store in memory, which
a restarted instance reads back from the changelog: tests/java/apps/CountByKey.java.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.client_compat.client import Record, read
from tests.client_compat.servers import Server
from tests.groups.topics import CLIENT, PARTITIONS, committed, make_topic
from tests.support.eventually import eventually
from tests.support.kafka_apps import kafka_app_command
from tests.support.kafka_distribution import REPOSITORY
from tests.support.line_rpc import LineRpc

pytestmark = [pytest.mark.real, pytest.mark.timeout(600), pytest.mark.usefixtures("needs_kafka_apps")]

PROGRAM = REPOSITORY / "tests" / "java" / "apps" / "CountByKey.java"
WORDS = [b"word-%d" % number for number in range(7)]
STATIC_SESSION_MS = 300_000
"""Longer than the tests: what happens in them is not the end of a session."""

DYNAMIC_SESSION_MS = 6_000
"""For so long the group waits for the instance that was killed."""

PATIENCE_S = 120.0
"""A JVM that compiles its program may take half a minute on a busy machine."""


@dataclass(frozen=True)
class Described:
    state: str
    tasks: int
    rebalances: int
    """How many this process has been part of."""


class Application:
    """Its two instances, by name."""

    def __init__(self, server: Server, name: str, directory: Path, *, static: bool) -> None:
        self.server = server
        self.name = name
        self.input, self.output = f"{name}-in", f"{name}-out"
        self.repartition, self.changelog = f"{name}-words-repartition", f"{name}-counts-changelog"
        self._directory = directory
        self._static = static
        self._instances: dict[str, LineRpc] = {}
        self._produced = 0

    def start(self, instance: str) -> None:
        settings = {
            "application.id": self.name,
            "bootstrap.servers": self.server.bootstrap,
            "group.protocol": "classic",
            "state.dir": str(self._directory / instance),
            "session.timeout.ms": str(STATIC_SESSION_MS if self._static else DYNAMIC_SESSION_MS),
            "heartbeat.interval.ms": "500",
            "commit.interval.ms": "100",
            "repartition.purge.interval.ms": "200",
            "auto.offset.reset": "earliest",
        } | ({"group.instance.id": instance} if self._static else {})
        given = [f"{name}={value}" for name, value in settings.items()]
        self._instances[instance] = LineRpc(
            kafka_app_command(str(PROGRAM), self.input, self.output, *given, log_level="WARN")
        )

    def kill(self, instance: str) -> None:
        self._instances.pop(instance).close()

    def end(self) -> None:
        for instance in list(self._instances):
            self.kill(instance)

    def described(self, instance: str) -> Described:
        return Described(**self._instances[instance].call("describe"))

    def produce(self) -> None:
        """The same number of each word to every partition."""
        words = [Record(value=word) for word in WORDS * 10]
        for partition in range(PARTITIONS):
            CLIENT.produce(self.server.bootstrap, self.input, words, partition)
        self._produced += 10 * PARTITIONS

    @property
    def expected(self) -> dict[bytes, int]:
        return dict.fromkeys(WORDS, self._produced)

    def counted(self) -> dict[bytes, int]:
        """The last count of each word."""
        counts: Counter[bytes] = Counter()
        for partition in range(PARTITIONS):
            _, end = CLIENT.watermarks(self.server.bootstrap, self.output, partition)
            for record in read(CLIENT, self.server.bootstrap, self.output, end, partition) if end else ():
                assert record.key is not None and record.value is not None
                counts[record.key] = int.from_bytes(record.value)
        return dict(counts)


@pytest.fixture
def app(server: Server, group: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Application]:
    app = Application(server, group, tmp_path, static=request.param == "static")
    make_topic(server, app.input)
    make_topic(server, app.output)
    for instance in ("a", "b"):
        app.start(instance)
    try:
        yield app
    finally:
        app.end()


def await_shared(app: Application) -> None:
    """Each of the two has as many tasks as the other: one for each partition and half of the topology."""

    def both_have_half() -> bool:
        both = [app.described(instance) for instance in ("a", "b")]
        return all(one.state == "RUNNING" and one.tasks == PARTITIONS for one in both)

    eventually(both_have_half, "both instances run half of the tasks", PATIENCE_S)


def ends(app: Application, topic: str) -> dict[int, int]:
    """Of the partitions that have had a record."""
    found = {partition: CLIENT.watermarks(app.server.bootstrap, topic, partition)[1] for partition in range(PARTITIONS)}
    return {partition: end for partition, end in found.items() if end}


def await_counted(app: Application) -> None:
    """All that was produced is counted once, and committed: an instance that is killed now has nothing to repeat."""
    eventually(lambda: app.counted() == app.expected, f"{app.expected} counted", PATIENCE_S)
    for topic in (app.input, app.repartition):
        eventually(lambda: committed(app.server, app.name, topic) == ends(app, topic), f"all of {topic} is committed")  # noqa: B023


def await_emptied(app: Application, topic: str) -> None:
    def is_empty() -> bool:
        marks = [CLIENT.watermarks(app.server.bootstrap, topic, partition) for partition in range(PARTITIONS)]
        return all(low == high for low, high in marks)

    eventually(is_empty, f"no record is left in {topic}")


@pytest.mark.parametrize("app", ["static"], indirect=True)
def test_a_static_instance_that_is_killed_comes_back_without_a_rebalance(app: Application) -> None:
    app.produce()
    await_shared(app)
    await_counted(app)

    # The leader is one of the two.
    for killed, other in (("a", "b"), ("b", "a")):
        before = app.described(other)
        app.kill(killed)
        app.produce()
        app.start(killed)
        await_counted(app)
        await_shared(app)
        assert app.described(other) == before

    # Streams deletes what it has read from its repartition topic, and keeps its state in a compacted one.
    await_emptied(app, app.repartition)
    assert CLIENT.topic_configs(app.server.bootstrap, app.changelog)["cleanup.policy"] == "compact"


@pytest.mark.parametrize("server", ["holdfast"], indirect=True)
@pytest.mark.parametrize("app", ["dynamic"], indirect=True)
def test_a_dynamic_instance_that_is_killed_costs_a_rebalance(app: Application) -> None:
    """The control. No count is lost by it either."""
    app.produce()
    await_shared(app)
    await_counted(app)

    before = app.described("a")
    app.kill("b")
    app.produce()
    app.start("b")
    await_counted(app)
    await_shared(app)

    assert app.described("a").rebalances > before.rebalances
