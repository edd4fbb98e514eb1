"""A hundred topics created, and a hundred deleted, in one request, as deployment tools do."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.servers import Broker, both
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from benchmarks.wire import Wire
from holdfast.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState

_Request: TypeAlias = CreateTopicsRequest | CreatePartitionsRequest | DeleteTopicsRequest

NAME: Final = "many-topics"
SERIES: Final = "many topics"
TOPICS: Final = 100
PARTITIONS: Final = 1
PAUSE_SECONDS: Final = 2
TARGET: Final = Target("at most", 3.0)
_TIMEOUT_MS: Final = 120_000
_SYNCS: Final = "fsync,fdatasync,syncfs,sync_file_range,msync"
_ATTACH_SECONDS: Final = 30


def run(plan: Plan) -> Result:
    rows: list[Row] = []
    with both() as servers:
        for number in range(plan.pick(full=5, quick=1)):  # not counted: the JVM compiles hot code
            for server in servers.values():
                _round(server, f"warm-up-{number}")
        for number in range(1, plan.rounds + 1):
            for name in alternating(servers, number):
                with plan.attempt(SERIES, name, number):
                    rows.append(Row(SERIES, name, number, _round(servers[name], f"round-{number}", PAUSE_SECONDS)))
        syncs = {name: _syncs(server) for name, server in servers.items()}
    return Result(
        NAME, {"topics": TOPICS, "partitions": PARTITIONS, "pause_seconds": PAUSE_SECONDS, "syncs": syncs}, rows
    )


def _round(server: Broker, prefix: str, pause_seconds: float = 0) -> dict[str, float]:
    names = [f"{prefix}-{number:03d}" for number in range(TOPICS)]
    with Wire(server) as wire:

        def seconds(request: _Request, version: int) -> float:
            time.sleep(pause_seconds)
            return _seconds(wire, request, version)

        new = [CreatableTopic(name, PARTITIONS, 1) for name in names]
        grown = [CreatePartitionsTopic(name, PARTITIONS + 1, None) for name in names]
        doomed = [DeleteTopicState(name) for name in names]
        return {
            "create_s": seconds(CreateTopicsRequest(new, _TIMEOUT_MS), 7),
            "grow_s": seconds(CreatePartitionsRequest(grown, _TIMEOUT_MS), 3),
            "delete_s": seconds(DeleteTopicsRequest(doomed, [], _TIMEOUT_MS), 6),
        }


def _seconds(wire: Wire, request: _Request, version: int) -> float:
    began = time.perf_counter()
    answer = wire.ask(request, version)
    taken = time.perf_counter() - began
    results = getattr(answer, "topics", None) or getattr(answer, "results", None) or answer.responses
    refused = [result for result in results if result.error_code]
    if refused or len(results) != TOPICS:
        raise RuntimeError(f"{len(results)} answers, refused: {refused[:1]}")
    return taken


def _syncs(server: Broker) -> int | None:
    """The number of disk syncs of the server in a round; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        seen = Path(directory) / "calls"
        command = [strace, "-f", "-qq", "-e", f"trace={_SYNCS}", "-o", str(seen), "-p", str(server.pid)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
            try:
                if not _is_traced(server.pid):
                    return None
                _round(server, "traced")
            finally:
                tracer.terminate()
        return sum("sync(" in line for line in seen.read_text().splitlines())


def _is_traced(pid: int) -> bool:
    deadline = time.monotonic() + _ATTACH_SECONDS
    while time.monotonic() < deadline:
        tasks = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        if not any("TracerPid:\t0\n" in status for status in tasks):
            return True
        time.sleep(0.05)
    return False


_SHOWN: Final = (
    (f"create {TOPICS} topics, s", "create_s"),
    (f"add one partition to each of {TOPICS} topics, s", "grow_s"),
    (f"delete {TOPICS} topics, s", "delete_s"),
)
_TARGETED: Final = {"create_s": "create", "delete_s": "delete"}


def section(result: Result) -> list[str]:
    syncs = result.settings["syncs"]
    text = (
        "In each round, the benchmark sends one CreateTopics, one CreatePartitions and one DeleteTopics request. Each"
        f" request is for {result.settings['topics']} topics. A new topic has {result.settings['partitions']}"
        " partition. The time is measured from the request to its response. Both brokers use the same disk. Before the"
        " first round, each server runs five rounds that are not counted. Both brokers respond when the change is"
        " stored, and create or remove the directories after the response. The benchmark therefore waits for"
        f" {result.settings['pause_seconds']} s before each counted request."
    )
    if syncs.get(HOLDFAST) is not None:
        text += (
            " In a separate round, strace counted how often each broker waits for the disk (fsync and fdatasync). For"
            f" the three requests together, Holdfast waits {syncs[HOLDFAST]} times, and Kafka waits {syncs[KAFKA]}"
            " times."
        )
    rows = [
        (
            what,
            figure(result.values(SERIES, HOLDFAST, name)),
            figure(result.values(SERIES, KAFKA, name)),
            times(result.ratio(SERIES, name)),
            str(TARGET) if name in _TARGETED else "",
        )
        for what, name in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast", "Apache Kafka", "ratio", "target"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    measured = ((f"{what} {TOPICS} topics in one request: time ÷ Kafka", name) for name, what in _TARGETED.items())
    found = ((what, result.ratio(SERIES, name)) for what, name in measured)
    return [Verdict(what, TARGET, ratio) for what, ratio in found if ratio is not None]
