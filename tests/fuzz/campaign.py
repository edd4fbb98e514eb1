"""Running the worker for a while, and reading what libFuzzer says about it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz import packed_corpus
from tests.fuzz.targets import Target
from tests.support.kafka_distribution import REPOSITORY

ONE_INPUT_SECONDS: Final = 60
"""When libFuzzer itself ends an input, by the wall clock: one that never ends would never be measured."""
MEMORY_MB: Final = 1_024
"""When libFuzzer ends the process: whatever leaks, leaks into this."""
SPARE_SECONDS: Final = 150
"""For starting, and for going through the corpus first."""
LAST_LINES: Final = 60

_PROGRESS: Final = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+)")
_STATISTIC: Final = re.compile(r"stat::(\w+):\s+(\d+)")


@dataclass(frozen=True, slots=True)
class Result:
    target: str
    seconds: float
    executions: int
    branches: int
    features: int
    peak_mb: int
    corpus: dict[str, bytes]
    finding: bytes | None
    """The input that broke something."""
    last_words: str

    @property
    def summary(self) -> str:
        found = "a finding" if self.finding is not None else "no finding"
        return (
            f"{self.target}: {self.executions:,} executions in {self.seconds:.0f} s"
            f" ({self.executions / self.seconds:,.0f}/s), {self.branches:,} branches, {self.features:,} features,"
            f" peak memory {self.peak_mb} MB, corpus {len(self.corpus)}: {found}"
        )


def fuzz(target: Target, seconds: float, inputs: dict[str, bytes], directory: Path) -> Result:
    """Fuzzes for so long, or until something breaks."""
    corpus, findings = directory / "corpus", directory / "findings"
    for each in (corpus, findings):
        each.mkdir()
    packed_corpus.unpack(inputs, corpus)
    done = _run_worker(
        target.name,
        f"-max_total_time={max(1, round(seconds))}",
        f"-max_len={target.max_bytes}",
        f"-timeout={ONE_INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        str(corpus),
        wait_seconds=seconds + SPARE_SECONDS,
    )
    found = next((path.read_bytes() for path in sorted(findings.iterdir())), None)
    if done.returncode != 0 and found is None:
        raise RuntimeError(f"the fuzzer itself failed:\n{_last_lines(done.stdout)}")
    return _result(target.name, seconds, done.stdout, packed_corpus.gather(corpus), found)


def _run_worker(*arguments: str, wait_seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.worker", *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=wait_seconds,
        check=False,
    )


def _result(target: str, seconds: float, output: str, corpus: dict[str, bytes], finding: bytes | None) -> Result:
    progress = [tuple(map(int, match.groups())) for match in _PROGRESS.finditer(output)]
    executions, branches, features = progress[-1] if progress else (0, 0, 0)
    statistics = {name: int(value) for name, value in _STATISTIC.findall(output)}
    return Result(
        target=target,
        seconds=seconds,
        executions=statistics.get("number_of_executed_units", executions),
        branches=branches,
        features=features,
        peak_mb=statistics.get("peak_rss_mb", 0),
        corpus=corpus,
        finding=finding,
        last_words=_last_lines(output),
    )


def _last_lines(output: str) -> str:
    return "\n".join(output.splitlines()[-LAST_LINES:])
