"""Streaming queries under test with every row that they were given, plain consumers beside them, and what the group and
the machine show of both."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

import holdfast
from holdfast import Admin
from holdfast.client.descriptions import GroupDescription, MemberDescription
from holdfast.spark import await_started
from tests.client_compat.servers import Server
from tests.groups.topics import PARTITIONS, committed
from tests.support.eventually import eventually
from tests.support.kafka_distribution import kafka_tool
from tests.support.process_tree import command_line, descendants

At = tuple[int, int]
"""A record: its partition and its offset."""

Shape = Callable[[Any], Any]
"""What a query makes of the source's rows."""

OFTEN = {"processingTime": "200 milliseconds"}
QUICK_QUERY = {
    "startingOffsets": "earliest",
    "kafka.heartbeat.interval.ms": "200",
    "kafka.session.timeout.ms": "30000",
    "kafka.metadata.max.age.ms": "1000",
}
QUICK_CONSUMER = {
    "auto.offset.reset": "earliest",
    "heartbeat.interval.ms": 200,
    "session.timeout.ms": 30_000,
    "partition.assignment.strategy": "cooperative-sticky",
    "auto.commit.interval.ms": 200,
}
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
WORKERS = "pyspark.daemon"


def as_it_is(rows: Any) -> Any:
    return rows


class StreamQuery:
    """A query whose rows come to this process, batch by batch. While `gate` is closed a batch does not end."""

    def __init__(self, spark: Any, options: Mapping[str, Any], checkpoint: Path, shape: Shape = as_it_is) -> None:
        """Options that are None are not given."""
        self.spark = spark
        self.options = {**QUICK_QUERY, **options}
        self.checkpoint = checkpoint
        self._shape = shape
        self.batches: list[list[Any]] = []
        """The rows of every batch that was begun."""
        self.finished = 0
        """How many of them have ended."""
        self.gate = threading.Event()
        self.gate.set()
        self.query: Any = None

    def start(self, trigger: Mapping[str, Any] | None = None) -> None:
        """Also once more, from the checkpoint."""
        wanted = {name: str(value) for name, value in self.options.items() if value is not None}
        rows = self.spark.readStream.format("holdfast").options(**wanted).load()
        writer = self._shape(rows).writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(**(trigger or OFTEN))
        self.query = writer.start()
        await_started(self.query)

    def _take(self, rows: Any, _number: int) -> None:
        self.batches.append(rows.collect())
        self.gate.wait()
        self.finished += 1

    @property
    def rows(self) -> list[Any]:
        return [row for batch in list(self.batches) for row in batch]

    @property
    def records(self) -> list[At]:
        return [(row.partition, row.offset) for row in self.rows]

    @property
    def error(self) -> str:
        """What the query failed with; it has to."""
        eventually(lambda: not self.query.isActive, "the end of the query")
        failure = self.query.exception()
        assert failure is not None, "the query ended well"
        return str(failure)

    def to_its_end(self) -> StreamQuery:
        """It must end by itself, and well."""
        assert self.query.awaitTermination(60), "the query has not ended"
        return self

    def await_rows(self, count: int) -> None:
        self.await_that(lambda: len(set(self.records)) >= count, f"{count} different records")

    def await_stored(self, server: Server, topic: str, offset: int, partitions: int = PARTITIONS) -> None:
        """Until the group has this offset for every partition of the topic."""
        group, expected = self.options["kafka.group.id"], dict.fromkeys(range(partitions), offset)
        self.await_that(lambda: committed(server, group, topic) == expected, f"{expected} stored in {group}")

    def await_that(self, look: Callable[[], Any], what: str) -> None:
        """A query that has ended is not waited for."""
        eventually(lambda: look() or not self.query.isActive, what)
        assert look(), f"{what}: the query has ended: {self.query.exception()}"

    def stop(self) -> None:
        self.query.stop()

    def end(self) -> None:
        self.gate.set()
        if self.query is not None:
            self.query.stop()


class PlainMember:
    """A consumer in a thread of its own, with its callbacks and records."""

    def __init__(self, kind: str, bootstrap: str, group: str, topic: str, settings: Mapping[str, Any]) -> None:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        config = {"bootstrap.servers": bootstrap, "group.id": group, **QUICK_CONSUMER, **dotted}
        make: Any = {"confluent": confluent_kafka.Consumer, "holdfast": holdfast.Consumer}[kind]
        self._consumer: Any = make(config)
        self.partitions: set[int] = set()
        self.records: list[At] = []
        self.gained: list[int] = []
        self.revoked: list[int] = []
        """Every partition that it had to give up before its end."""
        self._stopping = threading.Event()
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Commit, and leave if it is dynamic."""
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error() is None:
                    self.records.append((message.partition(), message.offset()))
        self._consumer.close()

    def _assigned(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        self.gained += [one.partition for one in partitions]
        self.partitions |= {one.partition for one in partitions}

    def _revoked(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        if not self._stopping.is_set():
            self.revoked += [one.partition for one in partitions]
        self.partitions -= {one.partition for one in partitions}


# -- what the group shows ----------------------------------------------------------------------------------------------


def described(server: Server, group: str) -> GroupDescription:
    with Admin({"bootstrap.servers": server.bootstrap}) as admin:
        return admin.describe_group(group)


def assignments(server: Server, group: str) -> dict[str, set[int]]:
    """By instance id, or client id where there is none: the partitions. Empty while the group is not stable."""
    found = described(server, group)
    if found.state != "Stable":
        return {}
    return {name_of(one): {number for some in one.partitions.values() for number in some} for one in found.members}


def name_of(member: MemberDescription) -> str:
    return member.group_instance_id or member.client_id


def await_assignments(server: Server, group: str, counts: Collection[int], within_s: float = 60) -> dict[str, set[int]]:
    """Until the members have so many partitions, each one of them one member's."""

    def look() -> dict[str, set[int]]:
        found = assignments(server, group)
        every = [number for assignment in found.values() for number in assignment]
        fits = sorted(map(len, found.values())) == sorted(counts) and len(every) == len(set(every))
        return found if fits else {}

    return eventually(look, f"assignments of {counts} in {group}", within_s)


def groups_tool(server: Server, *arguments: str) -> list[dict[str, str]]:
    """The rows that Apache Kafka's own tool prints under its headings."""
    printed = kafka_tool(GROUPS_TOOL, "--bootstrap-server", server.bootstrap, *arguments)
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    headings = next((line for line in lines if line[0] == "GROUP"), [])
    return [dict(zip(headings, line, strict=False)) for line in lines[lines.index(headings) + 1 :]] if headings else []


# -- what the machine shows --------------------------------------------------------------------------------------------


def processes(having: str) -> set[int]:
    """The pids of the processes below this one, whose command lines have this."""
    return {pid for pid in descendants(os.getpid()) if having in command_line(pid)}


def connected_to(server: Server) -> set[int]:
    """The pids of the processes below this one that have a connection to the broker."""
    port = f":{int(server.bootstrap.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(port) and line[3] == "01"}
    return {pid for pid in descendants(os.getpid()) if not sockets.isdisjoint(_files(pid))}


def _files(pid: int) -> set[str]:
    """Empty if it has ended."""
    found = set()
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(path.readlink()))
    return found


# -- what is reported to the user --------------------------------------------------------------------------------------


def one_sentence(said: str) -> str:
    """What Spark shows of an error, without what it adds of its own: one line that is no stack."""
    result = (
        said.partition("=== Streaming Query ===")[0].partition("JVM stacktrace")[0].partition("SQLSTATE")[0].strip()
    )
    assert 'File "' not in result, said
    assert len(result.splitlines()) == 1, said
    return result
