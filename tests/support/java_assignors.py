"""The assignors of Apache Kafka's own client, asked from Python: many cases in one JVM.

    with JavaAssignors() as java:
        assert java.assign("range", cluster, subscriptions) == {"member-1": {"orders": [0, 1]}}

A case is one line of JSON: `assignor`, `partitions` {topic: count}, `racks` {topic: [[rack, …], …]}, `members`
{id: `topics` (a list, or the number of a list in `subscriptions`), `user_data` in base64, `owned` {topic: [number, …]},
`generation`, `rack`, `instance`}; `repeat` and `seconds` say how often and how long at most it is run, `assignments`
whether the last run's answer is wanted, `memory` whether the heap is measured.
"""

import base64
import contextlib
import json
import selectors
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.assignors.interface import Cluster, MemberSubscription
from tests.support.kafka_distribution import LOG_CONFIG, REPOSITORY, KafkaUnavailable, kafka_distribution

SOURCE = REPOSITORY / "tests" / "java" / "Assignors.java"

_PATIENCE_S = 120.0
_STDERR_LINES = 30


class JavaTooSlow(Exception):
    """No answer within the time given; the JVM is gone."""


@dataclass(frozen=True)
class JavaAnswer:
    """`assignments` are by member and topic, numbers in order; the heap is in bytes, if it was asked for."""

    assignments: dict[str, dict[str, list[int]]]
    ns: list[int]
    """How long each run took."""
    written_ns: list[int]
    """The same until all assignments are also written in the bytes that members get."""
    heap_before: int = 0
    """In use before the last run, after a collection: what the assignor is given."""
    heap_peak: int = 0
    """The most in use during the last run, garbage that nobody had collected yet included."""
    heap_after: int = 0
    """In use after the last run, after a collection: what it was given and its answer."""


class JavaAssignors:
    """One JVM that answers until it is left."""

    def __init__(self, *jvm_options: str) -> None:
        self._jvm = subprocess.Popen(
            java_command(SOURCE, *jvm_options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._listener = threading.Thread(target=self._read_stderr, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._jvm.kill()
        self._jvm.wait()
        self._listener.join()
        for pipe in (self._jvm.stdin, self._jvm.stdout, self._jvm.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # half a case, which nobody reads any more
                pipe.close()

    @property
    def pid(self) -> int:
        return self._jvm.pid

    def assign(
        self, assignor: str, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, dict[str, list[int]]]:
        return self.answer(case(assignor, cluster, subscriptions)).assignments

    def answer(self, asked: Mapping[str, Any], patience_s: float = _PATIENCE_S) -> JavaAnswer:
        """JavaTooSlow when it takes longer than `patience_s`: the JVM is killed, and this object of no more use."""
        return self._request(json.dumps(asked), patience_s)

    def again(self, patience_s: float = _PATIENCE_S) -> JavaAnswer:
        """The last case once more, without the cost of telling it."""
        return self._request("again", patience_s)

    def _request(self, line: str, patience_s: float) -> JavaAnswer:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        try:
            self._jvm.stdin.write(line + "\n")
            self._jvm.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        with selectors.DefaultSelector() as selector:
            selector.register(self._jvm.stdout, selectors.EVENT_READ)
            if not selector.select(patience_s):
                self._jvm.send_signal(signal.SIGKILL)
                raise JavaTooSlow(f"no answer within {patience_s:g} s")
        answer = self._jvm.stdout.readline()
        if not answer:
            raise self._died()
        return _understood(json.loads(answer))

    def _read_stderr(self) -> None:
        assert self._jvm.stderr is not None
        for line in self._jvm.stderr:
            self._stderr.append(line)

    def _died(self) -> RuntimeError:
        self._jvm.wait()
        self._listener.join()
        return RuntimeError(f"the JVM ended with exit code {self._jvm.returncode}:\n{''.join(self._stderr)}")


def case(
    assignor: str,
    cluster: Cluster,
    subscriptions: Mapping[str, MemberSubscription],
    *,
    repeat: int = 1,
    seconds: float = _PATIENCE_S,
    assignments: bool = True,
    memory: bool = False,
) -> dict[str, Any]:
    """The line for one question. Equal lists of topics are written once."""
    lists: dict[tuple[str, ...], int] = {}
    return {
        "assignor": assignor,
        "partitions": dict(cluster.partitions),
        "racks": {topic: [sorted(of_one) for of_one in racks] for topic, racks in cluster.racks.items()},
        "members": {member: _member(reported, lists) for member, reported in subscriptions.items()},
        "subscriptions": [list(topics) for topics in lists],
        "repeat": repeat,
        "seconds": seconds,
        "assignments": assignments,
        "memory": memory,
    }


def _member(reported: MemberSubscription, lists: dict[tuple[str, ...], int]) -> dict[str, Any]:
    return {
        "topics": lists.setdefault(tuple(reported.topics), len(lists)),
        "user_data": None if reported.user_data is None else base64.b64encode(reported.user_data).decode(),
        "owned": {topic: list(numbers) for topic, numbers in reported.owned.items()},
        "generation": reported.generation,
        "rack": reported.rack,
        "instance": reported.group_instance_id,
    }


def _understood(answer: Mapping[str, Any]) -> JavaAnswer:
    assignments: Mapping[str, Mapping[str, Sequence[int]]] = answer.get("assignments", {})
    return JavaAnswer(
        {member: {topic: sorted(given[topic]) for topic in sorted(given)} for member, given in assignments.items()},
        answer["ns"],
        answer["written_ns"],
        answer.get("heap_before", 0),
        answer.get("heap_peak", 0),
        answer.get("heap_after", 0),
    )


def java_command(source: Path, *jvm_options: str) -> list[str]:
    """The command line that runs a program of one file beside Kafka's jars; KafkaUnavailable where that cannot be."""
    distribution = kafka_distribution()
    need_compiler(str(distribution.java))
    return [
        str(distribution.java),
        *(jvm_options or ("-Xmx512M",)),
        f"-Dlog4j2.configurationFile={LOG_CONFIG}",
        "-Dlog.level=ERROR",
        "-cp",
        f"{distribution.libs}/*",
        str(source),
    ]


@cache
def need_compiler(java: str) -> None:
    """The program is run from its source, which a mere JRE cannot do."""
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=False)
    if "jdk.compiler@" not in modules.stdout:
        raise KafkaUnavailable(f"{java} cannot run Java source: a JDK is needed (openjdk-17-jdk-headless)")
