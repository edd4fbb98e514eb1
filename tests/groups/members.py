"""Members of groups as a test sees them: processes of any client, known by the events that they print."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from tests.groups.consumer_process import ConsumerConfig
from tests.support.child_process import end_child, start_child
from tests.support.eventually import eventually
from tests.support.kafka_distribution import REPOSITORY, kafka_distribution, run_script

HERE = Path(__file__).parent
STOP_PATIENCE_S = 30

JAVA_OPTIONS = ("-Xmx96M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog.level=WARN")
"""A small JVM that starts quickly."""


# -- how each client is started ---------------------------------------------------------------------------------------


class GroupClient(Protocol):
    @property
    def name(self) -> str: ...

    def command(self, config: ConsumerConfig, directory: Path) -> list[str]:
        """The command line of a consumer; files that it needs may be written to ``directory``."""


@dataclass(frozen=True)
class PythonConsumer:
    name: str
    module: str

    def command(self, config: ConsumerConfig, directory: Path) -> list[str]:
        path = f"PYTHONPATH={REPOSITORY}:{REPOSITORY / 'src'}"
        return ["env", path, sys.executable, "-m", self.module, config.to_json()]


class JavaConsumer:
    """Kafka's own VerifiableConsumer, whose events the others copy."""

    name = "java"

    def command(self, config: ConsumerConfig, directory: Path) -> list[str]:
        settings = {
            "heartbeat.interval.ms": config.heartbeat_interval_ms,
            "metadata.max.age.ms": config.metadata_max_age_ms,
            # A leader that has lost its only broker would forget its topics, and join again for that (KIP-899).
            "metadata.recovery.strategy": "none",
        }
        assignor = {"range": "RangeAssignor", "roundrobin": "RoundRobinAssignor"}[config.assignor]
        arguments = ["--bootstrap-server", config.bootstrap, "--topic", config.topic, "--group-id", config.group]
        if config.instance_id is not None:
            arguments += ["--group-instance-id", config.instance_id]
        if config.group_protocol is not None:
            arguments += ["--group-protocol", config.group_protocol]
            del settings["heartbeat.interval.ms"]  # the newer protocol takes it from the broker
        else:
            arguments += ["--session-timeout", str(config.session_timeout_ms)]
            arguments += ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}"]
        properties = directory / "consumer.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        arguments += ["--command-config", str(properties)]
        return kafka_distribution().command(
            "org.apache.kafka.tools.VerifiableConsumer", *arguments, jvm_options=JAVA_OPTIONS
        )


class KafkajsConsumer:
    name = "kafkajs"

    def command(self, config: ConsumerConfig, directory: Path) -> list[str]:
        assert config.instance_id is None, "kafkajs has no static membership"
        assert config.assignor == "range", "the assigner that the script brings"
        return ["node", str(HERE / "kafkajs_consumer.js"), kafkajs_path(), config.to_json()]


@dataclass(frozen=True)
class GoConsumer:
    """One of the families that the program of `tests/groups/go` has."""

    name: str
    has_static_members: bool = True

    def command(self, config: ConsumerConfig, directory: Path) -> list[str]:
        assert config.instance_id is None or self.has_static_members, f"{self.name} has no static membership"
        return [go_members_path(), self.name, config.to_json()]


CONFLUENT = PythonConsumer("confluent-kafka", "tests.groups.confluent_consumer")
KAFKA_PYTHON = PythonConsumer("kafka-python", "tests.groups.kafka_python_consumer")
AIOKAFKA = PythonConsumer("aiokafka", "tests.groups.aiokafka_consumer")
HOLDFAST = PythonConsumer("holdfast", "tests.groups.holdfast_consumer")
JAVA = JavaConsumer()
KAFKAJS = KafkajsConsumer()
FRANZ_GO = GoConsumer("franz-go")
SARAMA = GoConsumer("sarama")
KAFKA_GO = GoConsumer("kafka-go", has_static_members=False)
GO = (FRANZ_GO, SARAMA, KAFKA_GO)


@cache
def kafkajs_path() -> str:
    return run_script("kafkajs-ensure")


@cache
def go_members_path() -> str:
    return run_script("go-program-ensure", "tests/groups/go")


# -- a member ---------------------------------------------------------------------------------------------------------


class Member:
    """One consumer process in a group. What it tells is read when a test asks."""

    def __init__(self, client: GroupClient, config: ConsumerConfig, directory: Path) -> None:
        self.name = client.name
        self.config = config
        self._output = directory / "events.jsonl"
        self._process: subprocess.Popen[bytes] = start_child(client.command(config, directory), self._output)
        self._read = 0
        self._owned: set[int] = set()
        self._revocations = 0
        self._assignments = 0
        self._consumed: list[tuple[int, int]] = []
        self._committed: dict[int, int] = {}

    @property
    def owned(self) -> set[int]:
        """The partitions of its topic that it holds now."""
        self._listen()
        return set(self._owned)

    @property
    def revocations(self) -> int:
        """How often partitions were taken from it."""
        self._listen()
        return self._revocations

    @property
    def assignments(self) -> int:
        """How often it got an assignment."""
        self._listen()
        return self._assignments

    @property
    def consumed(self) -> list[tuple[int, int]]:
        """Partition and offset of every record that it got, in order."""
        self._listen()
        return list(self._consumed)

    @property
    def committed(self) -> dict[int, int]:
        """What it committed last with success, by partition."""
        self._listen()
        return dict(self._committed)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def output(self) -> str:
        """Everything that it printed."""
        return self._output.read_text(errors="replace")

    def stop(self) -> None:
        """Ask it to close its consumer and end. A dynamic member leaves its group by that, a static one does not."""
        exit_code = end_child(self._process, signal.SIGTERM, STOP_PATIENCE_S)
        assert exit_code in (0, 128 + signal.SIGTERM), f"{self.name} ended with exit code {exit_code}: {self.output()}"

    def kill(self) -> None:
        end_child(self._process, signal.SIGKILL, STOP_PATIENCE_S)

    def suspend(self) -> None:
        """It stands still and sends nothing; its sockets stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def __repr__(self) -> str:
        state = "running" if self.exit_code is None else f"ended with {self.exit_code}"
        return f"<{self.name} {self.config.instance_id or ''} {state}, owns {sorted(self.owned)}>"

    def _listen(self) -> None:
        with self._output.open("rb") as output:
            output.seek(self._read)
            lines = output.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        partitions = [entry["partition"] for entry in event.get("partitions", [])]
        match event["name"]:
            case "partitions_assigned":
                self._owned.update(partitions)
                self._assignments += 1
            case "partitions_revoked":
                self._owned.difference_update(partitions)
                # Some clients report an empty assignment before their first assignment.
                self._revocations += 1 if partitions else 0
            case "records_consumed":
                for entry in event["partitions"]:
                    offsets = range(entry["minOffset"], entry["maxOffset"] + 1)
                    self._consumed += [(entry["partition"], offset) for offset in offsets]
            case "offsets_committed":
                if event["success"]:
                    self._committed |= {entry["partition"]: entry["offset"] for entry in event["offsets"]}


StartMember = Callable[..., Member]
"""The fixture `start_member`: client first, then the fields of ConsumerConfig by name."""


# -- what a group of them comes to ------------------------------------------------------------------------------------


def is_shared(members: Sequence[Member], partitions: int) -> bool:
    """Every partition has exactly one owner, and every member has an assignment of its own size."""
    assignments = [member.owned for member in members]
    held = sorted(partition for assignment in assignments for partition in assignment)
    sizes = [len(assignment) for assignment in assignments]
    return held == list(range(partitions)) and max(sizes) - min(sizes) <= 1


def await_shared(members: Sequence[Member], partitions: int) -> list[set[int]]:
    """The assignments, by member, once they are fair."""

    def look() -> bool:
        ended = [member for member in members if member.exit_code is not None]
        assert not ended, f"{ended} should be in the group: {ended[0].output()[-2000:]}"
        return is_shared(members, partitions)

    eventually(look, f"{partitions} partitions shared by {list(members)}")
    return [member.owned for member in members]


def await_consumed(members: Sequence[Member], expected: set[tuple[int, int]]) -> None:
    """All of the records have arrived, none of them with two members."""

    def look() -> bool:
        return sum(len(member.consumed) for member in members) >= len(expected)

    eventually(look, f"{len(expected)} records at {list(members)}")
    got = [record for member in members for record in member.consumed]
    assert len(got) == len(expected), "somebody got a record twice"
    assert set(got) == expected
