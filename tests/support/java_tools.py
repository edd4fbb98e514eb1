"""Kafka's command-line tools, many in one JVM: a start of a JVM for each would take most of a test's time."""

from __future__ import annotations

import json
import subprocess
import tempfile
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.java_assignors import java_command
from tests.support.kafka_distribution import REPOSITORY

SOURCE = REPOSITORY / "tests" / "java" / "Tools.java"


class Done(NamedTuple):
    code: int
    printed: str
    """On stdout and stderr."""


class JavaTools:
    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the JVM
        self._jvm = subprocess.Popen(
            java_command(SOURCE, "-Xmx256M", "-XX:TieredStopAtLevel=1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._jvm.kill()
        self._jvm.wait()
        for file in (self._jvm.stdin, self._jvm.stdout, self._said):
            assert file is not None
            file.close()

    def run(self, main_class: str, *arguments: str) -> Done:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps([main_class, *arguments]) + "\n")
        self._jvm.stdin.flush()
        answer = self._jvm.stdout.readline()
        if not answer:
            self._said.seek(0)
            raise RuntimeError(f"the JVM ended: {self._said.read().decode()[-2000:]}")
        return Done(**json.loads(answer))
