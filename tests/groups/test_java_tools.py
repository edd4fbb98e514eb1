"""Kafka's own programs for groups, on Holdfast: they do and print what they do and print on Kafka."""

import csv
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.client_compat.servers import Server
from tests.groups.members import CONFLUENT, JAVA_OPTIONS, StartMember, await_shared
from tests.groups.topics import PARTITIONS, await_committed, committed, make_topic, produce
from tests.support.child_process import end_child, start_child
from tests.support.eventually import eventually
from tests.support.kafka_distribution import kafka_distribution, kafka_tool

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"


def test_the_performance_tool_reads_everything_as_a_group(server: Server, group: str, topic_name: str) -> None:
    topic = make_topic(server, topic_name)
    produce(server, topic, each=2_500)

    printed = kafka_tool(
        PERFORMANCE, "--bootstrap-server", server.bootstrap, "--topic", topic, "--group", group,
        "--num-records", "10000", "--timeout", "20000",
    )  # fmt: skip

    heads, numbers = list(csv.reader(printed.splitlines(), skipinitialspace=True))[-2:]
    measured = dict(zip(heads, numbers, strict=True))
    assert int(measured["data.consumed.in.nMsg"]) == 10_000
    await_committed(server, group, topic, 2_500)


def test_the_console_consumer_continues_where_its_group_stopped(
    server: Server, group: str, topic_name: str, tmp_path: Path
) -> None:
    # given
    topic = make_topic(server, topic_name, partitions=1)
    produce(server, topic, each=3, partitions=1)

    def consume(count: int) -> list[str]:
        return kafka_tool(
            CONSOLE, "--bootstrap-server", server.bootstrap, "--topic", topic, "--group", group, "--from-beginning",
            "--max-messages", str(count), "--timeout-ms", "20000",
        ).split()  # fmt: skip

    # when it reads two of three and commits as it closes, then the next one begins with the third
    assert consume(2) == ["0", "1"]
    assert committed(server, group, topic) == {0: 2}
    assert consume(1) == ["2"]


def test_the_groups_tool_describes_members_and_lag(
    server: Server, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given two static members with nothing left to read
    topic = make_topic(server, topic_name)
    members = [start_member(CONFLUENT, server.bootstrap, instance_id=instance) for instance in ("one", "two")]
    await_shared(members, PARTITIONS)
    produce(server, topic, each=7)
    await_committed(server, group, topic, 7)

    # when
    described = table(groups_tool(server, "--group", group, "--describe", "--members", "--verbose"))
    offsets = table(groups_tool(server, "--group", group, "--describe"))
    (state,) = table(groups_tool(server, "--group", group, "--describe", "--state"))

    # then
    assert {row["GROUP-INSTANCE-ID"] for row in described} == {"one", "two"}
    assert {row["#PARTITIONS"] for row in described} == {"2"}
    assert {row["CLIENT-ID"] for row in described} == {"rdkafka"}
    assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in offsets} == {
        (str(partition), "7", "7", "0") for partition in range(PARTITIONS)
    }
    assert (state["STATE"], state["#MEMBERS"], state["ASSIGNMENT-STRATEGY"]) == ("Stable", "2", "range")


def test_the_groups_tool_resets_offsets_and_deletes(
    server: Server, start_member: StartMember, group: str, topic_name: str
) -> None:
    # given
    topic = make_topic(server, topic_name)
    produce(server, topic, each=10)
    member = start_member(CONFLUENT, server.bootstrap)
    await_committed(server, group, topic, 10)
    reset = ("--group", group, "--reset-offsets", "--topic", topic, "--execute")

    # when somebody is in the group, then it refuses
    assert "inactive" in groups_tool(server, *reset, "--to-earliest")
    assert committed(server, group, topic) == dict.fromkeys(range(PARTITIONS), 10)

    # when nobody is
    member.stop()
    eventually(
        lambda: table(groups_tool(server, "--group", group, "--describe", "--state"))[0]["STATE"] == "Empty",
        "the group is empty",
    )
    groups_tool(server, *reset, "--shift-by", "-4")

    # then
    assert committed(server, group, topic) == dict.fromkeys(range(PARTITIONS), 6)
    assert group in groups_tool(server, "--list").split()
    assert "successful" in groups_tool(server, "--group", group, "--delete")
    assert group not in groups_tool(server, "--list").split()


def test_the_console_consumers_of_one_group_divide_a_topic(
    server: Server, group: str, topic_name: str, tmp_path: Path
) -> None:
    topic = make_topic(server, topic_name)
    printed = [tmp_path / f"console-{number}.txt" for number in range(2)]

    with console(server, topic, group, printed[0]), console(server, topic, group, printed[1]):
        eventually(lambda: partitions_by_client(server, group) == [2, 2], "each of the two has two partitions")
        produce(server, topic, each=25)
        await_committed(server, group, topic, 25)

    # They print when they end, and not only records.
    records = [[line for line in path.read_text().splitlines() if line.isdecimal()] for path in printed]
    assert [len(lines) for lines in records] == [50, 50]


@contextmanager
def console(server: Server, topic: str, group: str, output: Path) -> Iterator[None]:
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", topic, "--group", group, "--from-beginning"]
    arguments += ["--command-property", "auto.commit.interval.ms=200"]
    process = start_child(kafka_distribution().command(CONSOLE, *arguments, jvm_options=JAVA_OPTIONS), output)
    try:
        yield
    finally:
        end_child(process, signal.SIGTERM, patience_s=30)


def partitions_by_client(server: Server, group: str) -> list[int]:
    rows = table(groups_tool(server, "--group", group, "--describe", "--members"))
    return [int(row["#PARTITIONS"]) for row in rows]


def groups_tool(server: Server, *arguments: str) -> str:
    return kafka_tool(GROUPS, "--bootstrap-server", server.bootstrap, *arguments)


def table(printed: str) -> list[dict[str, str]]:
    """The rows that the tool prints under its line of headings."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    headings = next((line for line in lines if line[0] == "GROUP"), None)
    if headings is None:
        return []
    return [dict(zip(headings, line, strict=False)) for line in lines[lines.index(headings) + 1 :]]
