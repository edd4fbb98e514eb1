"""The tests are tested: bugs are put into a copy of the source, one at a time, and the suite must find each.

A bug is a file of this folder, `<name>.toml`: a sentence that says what goes wrong, and small edits of `src/`. An edit
that does not fit the source exactly once is an error, so a bug cannot fade away unnoticed when the code changes. Where
a bug has a pattern `reports`, the random suite runs alone and must fail with it: so each invariant of that suite is
shown to be able to fail. A bug outside of the coordinator names the `suite` that is to find it.

The checkout itself is never changed. Before the bugs comes the control: the copy as it is passes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BUGS: Final = Path(__file__).resolve().parent
SUITE: Final = "tests/unit/coordinator"
RANDOM_SUITE: Final = "tests/unit/coordinator/test_stateful_random.py"
NOT_MEASURING: Final = "not test_cost_bounds"
"""What measures time may fail by itself on a busy machine; then it would claim to have found the bug."""
PLUGIN: Final = "tests.mutation.fixed_seeds"
SOURCE_VARIABLE: Final = "HOLDFAST_SEEDED_SOURCE"
TIMEOUT_S: Final = 300


class DoesNotApply(Exception):
    """An edit of a seeded bug does not fit the source."""


@dataclass(frozen=True, slots=True)
class Edit:
    file: str
    before: str
    after: str

    def apply(self, source: Path) -> None:
        path = source / self.file
        text = path.read_text()
        count = text.count(self.before)
        if count != 1:
            raise DoesNotApply(f"{self.file} has this {count} times, not once:\n{self.before}")
        path.write_text(text.replace(self.before, self.after))


@dataclass(frozen=True, slots=True)
class Bug:
    name: str
    what: str
    edits: tuple[Edit, ...]
    reports: str | None = None
    """A pattern in the output of the random suite; None if another test is to find this bug."""
    suite: str = SUITE

    @classmethod
    def read(cls, path: Path) -> Bug:
        data = tomllib.loads(path.read_text())
        edits = tuple(Edit(edit["file"], edit["before"], edit["after"]) for edit in data["edit"])
        return cls(path.stem, data["what"], edits, data.get("reports"), data.get("suite", SUITE))

    def apply(self, source: Path) -> None:
        for edit in self.edits:
            try:
                edit.apply(source)
            except DoesNotApply as failure:
                raise DoesNotApply(f"seeded bug {self.name}: {failure}") from None


def all_bugs() -> list[Bug]:
    return [Bug.read(path) for path in sorted(BUGS.glob("*.toml"))]


@dataclass(frozen=True, slots=True)
class Run:
    """What the suite made of one copy."""

    passed: bool
    finder: str
    """The first test that failed, with its reason."""
    output: str


def copied(source: Path, into: Path) -> Path:
    return Path(shutil.copytree(source, into / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")))


def run_suite(source: Path, suite: str) -> Run:
    """The suite against this source, in a process of its own, up to the first failure."""
    path = ROOT / suite
    folder = path if path.is_dir() else path.parent  # without tests/conftest.py, which loads brokers and Spark
    command = [sys.executable, "-m", "pytest", suite, "-x", "-q", "-k", NOT_MEASURING]
    command += ["--confcutdir", str(folder), "-p", "no:cacheprovider", "-p", PLUGIN]
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", SOURCE_VARIABLE: str(source)}
    done = subprocess.run(
        [*command, "--timeout", str(TIMEOUT_S)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_S,
        check=False,
    )
    output = done.stdout + done.stderr
    if done.returncode not in (0, 1):  # 1: tests failed; anything else means that they did not run
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{output[-4_000:]}")
    return Run(done.returncode == 0, _finder(output), output)


def _finder(output: str) -> str:
    failed = re.search(r"^FAILED (\S+)", output, re.MULTILINE)
    name = failed.group(1).rpartition("/")[2] if failed else "nobody"
    reason = re.search(r"^E +AssertionError: (.+)$", output, re.MULTILINE)
    return f"{name} ({reason.group(1)[:80]})" if reason else name


@dataclass(frozen=True, slots=True)
class Detection:
    """What became of one bug."""

    bug: Bug
    is_found: bool
    finder: str

    def __str__(self) -> str:
        return f"{'found    ' if self.is_found else 'NOT FOUND'} {self.bug.name}: {self.finder}"


def run_bug(bug: Bug, source: Path, suite: str | None = None, random_suite: str = RANDOM_SUITE) -> Detection:
    with tempfile.TemporaryDirectory(prefix="holdfast-seeded-") as folder:
        copy = copied(source, Path(folder))
        bug.apply(copy)
        run = run_suite(copy, suite or bug.suite if bug.reports is None else random_suite)
    for_that_reason = bug.reports is None or re.search(bug.reports, run.output) is not None
    return Detection(bug, not run.passed and for_that_reason, run.finder)


def control(source: Path, suite: str = SUITE) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-seeded-") as folder:
        run = run_suite(copied(source, Path(folder)), suite)
    if not run.passed:
        raise RuntimeError(f"the control fails: without any bug, {run.finder}\n{run.output[-4_000:]}")


def run_all(bugs: Sequence[Bug], source: Path, workers: int) -> list[Detection]:
    for suite in sorted({bug.suite for bug in bugs}):
        control(source, suite)
    print("control: the unchanged copy passes", flush=True)
    catches = []
    with ThreadPoolExecutor(workers) as pool:
        for catch in pool.map(lambda bug: run_bug(bug, source), bugs):
            print(catch, flush=True)
            catches.append(catch)
    return catches


def main(arguments: Sequence[str]) -> int:
    """`scripts/seeded-bugs [name …]` runs these, or all."""
    bugs = [bug for bug in all_bugs() if not arguments or bug.name in arguments]
    if not bugs:
        print(f"no such bug: {' '.join(arguments)}", file=sys.stderr)
        return 2
    try:
        catches = run_all(bugs, ROOT / "src", workers=os.cpu_count() or 1)
    except (DoesNotApply, RuntimeError) as failure:
        print(failure, file=sys.stderr)
        return 2
    missed = [catch.bug.name for catch in catches if not catch.is_found]
    print(
        f"{len(bugs) - len(missed)} of {len(bugs)} seeded bugs found" + "".join(f"; MISSED {name}" for name in missed)
    )
    return 1 if missed else 0
