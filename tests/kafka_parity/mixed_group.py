"""One group with members of several clients, and what its coordinator says of it."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast import Admin
from holdfast.client.descriptions import GroupDescription, MemberDescription
from tests.client_compat.servers import Server
from tests.groups.consumer_process import ConsumerConfig
from tests.groups.members import (
    CONFLUENT,
    JAVA_OPTIONS,
    GroupClient,
    Member,
    PythonConsumer,
    await_shared,
)
from tests.groups.topics import make_topic
from tests.holdfast_client.consumers import grow_topic
from tests.holdfast_client.group_history import Generation, generations, read_history
from tests.support.eventually import eventually
from tests.support.kafka_distribution import kafka_distribution

METADATA_MAX_AGE_MS = 500
"""How soon a leader sees that its topic has grown."""
SESSION_MS = 45_000
"""Nobody is to be missed because a busy machine let it stand still."""
CONVERGES_WITHIN_S = 90.0

_JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


class JavaConsumer:
    """Kafka's VerifiableConsumer with any of the four assignors that come with its client."""

    name = "java"

    def command(self, config: ConsumerConfig, directory: Path) -> list[str]:
        properties = directory / "consumer.properties"
        settings = {
            "client.id": self.name,
            "heartbeat.interval.ms": config.heartbeat_interval_ms,
            "metadata.max.age.ms": config.metadata_max_age_ms,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return kafka_distribution().command(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", config.bootstrap, "--topic", config.topic, "--group-id", config.group),
            *("--session-timeout", str(config.session_timeout_ms), "--command-config", str(properties)),
            *("--assignment-strategy", f"org.apache.kafka.clients.consumer.{_JAVA_ASSIGNORS[config.assignor]}"),
            jvm_options=JAVA_OPTIONS,
        )


OURS = PythonConsumer("holdfast", "tests.kafka_parity.holdfast_consumer")
JAVA = JavaConsumer()
LIBRDKAFKA = CONFLUENT

CLIENT_IDS = {OURS.name: "holdfast", JAVA.name: "java", LIBRDKAFKA.name: "rdkafka"}
"""By which the coordinator tells them apart."""


@dataclass
class MixedGroup:
    """A topic, a group that reads it, and the members that this started; they are gone when it is left."""

    server: Server
    assignor: str
    directory: Path
    partitions: int
    session_ms: int = SESSION_MS
    members: list[Member] = field(default_factory=list)
    name: str = field(default_factory=lambda: f"g-{uuid.uuid4().hex[:12]}")
    _started: list[Member] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return f"t-{self.name}"

    def __enter__(self) -> Self:
        make_topic(self.server, self.topic, self.partitions)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for member in self._started:
            member.kill()

    # -- what a test does to it ----------------------------------------------------------------------------------------

    def start(self, client: GroupClient) -> Member:
        directory = self.directory / f"member-{len(self._started)}"
        directory.mkdir()
        config = ConsumerConfig(
            self.server.bootstrap,
            self.topic,
            self.name,
            assignor=self.assignor,
            session_timeout_ms=self.session_ms,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
        )
        member = Member(client, config, directory)
        self._started.append(member)
        self.members.append(member)
        self.settle()
        return member

    def stop(self, member: Member) -> None:
        self.members.remove(member)
        member.stop()
        self.settle()

    def grow(self, partitions: int) -> None:
        grow_topic(self.server, self.topic, partitions)
        self.partitions = partitions
        self.settle()

    def settle(self) -> None:
        """Until all have their assignments, and the coordinator says the same."""
        await_shared(self.members, self.partitions)
        eventually(self._is_idle, f"{self.name} at rest", CONVERGES_WITHIN_S)

    def _is_idle(self) -> bool:
        described = self._seen()
        reported = sorted(sorted(numbers(member, self.topic)) for member in described.members)
        return described.state == "Stable" and reported == sorted(sorted(member.owned) for member in self.members)

    # -- what there is to see ------------------------------------------------------------------------------------------

    def described(self) -> GroupDescription:
        """Once it is stable: of a group that rebalances Kafka tells no metadata, and librdkafka may join once more."""

        def stable() -> GroupDescription | None:
            seen = self._seen()
            return seen if seen.state == "Stable" else None

        found = eventually(stable, f"{self.name} is stable", CONVERGES_WITHIN_S)
        assert found is not None
        return found

    def _seen(self) -> GroupDescription:
        with Admin({"bootstrap.servers": self.server.bootstrap}) as admin:
            return admin.describe_group(self.name)

    def generations(self) -> list[Generation]:
        """All that were stored, in order, one for each number."""
        stored = {one.number: one for one in generations(read_history(self.server.bootstrap, self.name))}
        return [stored[number] for number in sorted(stored)]

    def leader(self) -> str:
        """The client id of the member that leads now."""
        last = self.generations()[-1]
        assert last.leader is not None
        return last.clients[last.leader]

    def assignments(self) -> dict[int, set[int]]:
        """What each member has, by its place among those that were started."""
        return {self._started.index(member): member.owned for member in self.members}


def numbers(member: MemberDescription, topic: str) -> set[int]:
    assert set(member.partitions) <= {topic}
    return set(member.partitions.get(topic, ()))


def revoked(member: Member) -> list[set[int]]:
    """What was taken from it, time after time."""
    said = member.output().splitlines(keepends=True)
    # Without its end a line is still being written.
    events: list[dict[str, Any]] = [json.loads(line) for line in said if line.startswith("{") and line.endswith("\n")]
    return [
        {entry["partition"] for entry in event["partitions"]}
        for event in events
        if event["name"] == "partitions_revoked" and event["partitions"]
    ]


def max_kept(before: dict[int, set[int]], after: dict[int, set[int]], partitions: int) -> int:
    """How many partitions can keep their owner at most, if assignments differ by one at most.

    Every member keeps what fits the smaller quota; and one more, as long as there are larger quotas, if it had more.
    """
    smaller, larger_count = divmod(partitions, len(after))
    had = [len(before.get(member, ())) for member in after]
    return sum(min(count, smaller) for count in had) + min(larger_count, sum(count > smaller for count in had))


def stayed(before: dict[int, set[int]], after: dict[int, set[int]]) -> int:
    return sum(len(assignment & before.get(member, set())) for member, assignment in after.items())
