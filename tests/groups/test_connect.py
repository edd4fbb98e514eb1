"""Kafka Connect in distributed mode: two workers, which are a group of the type `connect`, and one of them is killed.

Lines go from files through two source connectors to a topic, and through a sink connector with four tasks to a file.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.cli.main import main
from tests.client_compat.servers import Server
from tests.groups.topics import CLIENT, make_topic
from tests.support.connect_worker import ConnectWorker, Task
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(600), pytest.mark.usefixtures("needs_kafka_apps")]

SOURCES = ("source-0", "source-1")
SINK_TASKS = 4
ALL_TASKS = len(SOURCES) + SINK_TASKS
PATIENCE_S = 120.0
"""A worker takes half a minute to start on a busy machine."""

# Whole wherever it stands: a worker that is killed may leave half a line, to which another appends.
LINE = re.compile(r"<\S+?>")


@pytest.fixture
def workers(server: Server, group: str, tmp_path: Path) -> Iterator[list[ConnectWorker]]:
    started = [ConnectWorker(server.bootstrap, group, tmp_path, f"worker-{number}") for number in range(2)]
    try:
        for worker in started:
            worker.start()
        for worker in started:
            eventually(worker.is_ready, "the worker is ready", PATIENCE_S)
        yield started
    finally:
        for worker in started:
            worker.close()


def run_connectors(worker: ConnectWorker, topic: str, directory: Path) -> None:
    configs = {
        source: {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "topic": topic,
            "file": str(directory / source),
        }
        for source in SOURCES
    }
    configs["sink"] = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": str(SINK_TASKS),
        "topics": topic,
        "file": str(directory / "sink"),
    }
    for name, config in configs.items():
        eventually(lambda: worker.run_connector(name, config), f"{name} is taken", PATIENCE_S)  # noqa: B023


def await_tasks(asked: ConnectWorker, on: list[ConnectWorker]) -> list[Task]:
    """All tasks run, and on these workers."""
    expected = {worker.address for worker in on}

    def settled() -> list[Task] | None:
        tasks = asked.tasks()
        all_run = len(tasks) == ALL_TASKS and all(task.state == "RUNNING" for task in tasks)
        return tasks if all_run and {task.worker for task in tasks} == expected else None

    return eventually(settled, f"{ALL_TASKS} tasks run on {expected}", PATIENCE_S) or []


def lines_written(directory: Path, part: str) -> set[str]:
    written = set()
    for source in SOURCES:
        lines = [f"<{source}/{part}/{number}>" for number in range(200)]
        with (directory / source).open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        written |= set(lines)
    return written


def await_lines(directory: Path, expected: set[str]) -> None:
    def absent() -> set[str]:
        return expected - set(LINE.findall((directory / "sink").read_text()))

    eventually(lambda: not absent(), "every line has arrived", PATIENCE_S)


@pytest.fixture
def described(server: Server, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What `holdfast groups …` prints."""

    def run(*arguments: str) -> str:
        capsys.readouterr()
        code = main(["groups", *arguments, "--bootstrap-server", server.bootstrap])
        said = capsys.readouterr()
        assert (code, said.err) == (0, "")
        return said.out

    return run


def test_the_tasks_of_a_killed_worker_go_to_the_other_and_no_line_is_lost(
    server: Server, workers: list[ConnectWorker], group: str, tmp_path: Path, described: Callable[..., str]
) -> None:
    for file in (*SOURCES, "sink"):
        (tmp_path / file).touch()
    topic = make_topic(server, f"{group}-lines")
    run_connectors(workers[0], topic, tmp_path)
    await_tasks(workers[0], on=workers)
    expected = lines_written(tmp_path, "first")
    await_lines(tmp_path, expected)
    assert_described(described, group, [worker.address for worker in workers])

    workers[0].kill()
    expected |= lines_written(tmp_path, "while-it-was-away")
    await_tasks(workers[1], on=[workers[1]])
    await_lines(tmp_path, expected)

    workers[0].start()
    await_tasks(workers[1], on=workers)
    expected |= lines_written(tmp_path, "last")
    await_lines(tmp_path, expected)
    for kept in ("configs", "offsets", "status"):
        assert CLIENT.topic_configs(server.bootstrap, f"{group}-{kept}")["cleanup.policy"] == "compact"


def assert_described(described: Callable[..., str], group: str, addresses: list[str]) -> None:
    """The CLI shows the group for what it is: its assignments and subscriptions are not those of consumers."""

    def listed() -> list[str]:
        (found,) = [row.split() for row in described("list").splitlines() if row.startswith(f"{group} ")]
        return found

    eventually(lambda: listed() == [group, "Stable", "classic", "connect"], "the group is listed as Connect's")
    (shown,) = json.loads(described("describe", "--group", group, "--members", "--json"))
    assert (shown["protocol_type"], shown["protocol"]) == ("connect", "sessioned")
    # A worker calls itself by the address of its REST API.
    assert {member["client_id"] for member in shown["members"]} == {f"connect-{address}" for address in addresses}
    header, *rows = [row.split() for row in described("describe", "--group", group, "--members").splitlines()]
    assert {row[header.index("#PARTITIONS")] for row in rows} == {"-"}
