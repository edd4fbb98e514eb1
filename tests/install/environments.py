"""Holdfast as people install it: a wheel in a virtual environment that holds nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from holdfast.cli.exit_codes import EXIT_INTERRUPTED
from tests.support.kafka_distribution import REPOSITORY

BARE = ""
"""An install without an extra."""

STDIN = b"a line\n"
"""What a command finds there."""
PATIENCE_S = 300.0
_ENDS_BY_ITSELF_WITHIN_S = 1.0
_LOOK_EVERY_S = 0.05
_SOON_READY = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""As in the Makefile: each Spark lives for seconds here."""
_SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")


def extras() -> dict[str, list[str]]:
    """What each extra that users install asks for."""
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return {name: packages for name, packages in declared.items() if name != "dev"}


def build_wheel(directory: Path) -> Path:
    """From a copy: setuptools would take modules that were deleted since from its `build` directory."""
    source = directory / "source"
    for name in _SOURCES:
        if (REPOSITORY / name).is_dir():
            shutil.copytree(
                REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
            )
        else:
            shutil.copy2(REPOSITORY / name, source / name)
    _pip("wheel", "--no-deps", "--wheel-dir", str(directory), str(source))
    (wheel,) = directory.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Ended:
    code: int
    output: str
    errors: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.output}\n{self.errors}"


class Environment:
    """A virtual environment with Holdfast and one extra, or none; `directory` is where its commands run."""

    def __init__(self, directory: Path, wheel: Path, extra: str) -> None:
        self.extra = extra
        self.directory = directory
        self._home = directory / "venv"
        (directory / "stdin").write_bytes(STDIN)
        self.python = str(self._home / "bin" / "python")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self._home)], check=True)
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        pinned = ("--constraint", str(REPOSITORY / "requirements.lock"))
        _pip("--python", self.python, "install", "--no-compile", *pinned, wanted)

    def run_python(self, program: str, *arguments: str) -> Ended:
        return self._ended([self.python, "-c", program, *arguments])

    def run_shell(self, line: str) -> Ended:
        """A line as a user pastes it. What prints and does not end by itself is interrupted, as by Ctrl-C."""
        return self._ended(["bash", "-c", line])

    def _ended(self, command: list[str]) -> Ended:
        paths = [self.directory / name for name in ("stdout", "stderr")]
        with (
            paths[0].open("wb") as output,
            paths[1].open("wb") as errors,
            (self.directory / "stdin").open("rb") as typed,
        ):
            process = subprocess.Popen(
                command,
                stdin=typed,
                stdout=output,
                stderr=errors,
                cwd=self.directory,
                env=self._variables(),
                start_new_session=True,
                preexec_fn=_hears_ctrl_c,
            )
            code = _await_end(process, paths[0])
        said, complained = (path.read_text(errors="replace") for path in paths)
        return Ended(code, said, complained)

    def _variables(self) -> dict[str, str]:
        # What the tests themselves are run with must not help.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOLDFAST"))}
        return kept | {"PATH": f"{self._home / 'bin'}:{os.environ['PATH']}", "HOME": str(self.directory)} | _SOON_READY


def _hears_ctrl_c() -> None:
    """A shell has what it starts in the background ignore it, and a child inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _await_end(process: subprocess.Popen[bytes], output: Path) -> int:
    deadline = time.monotonic() + PATIENCE_S
    printed_at: float | None = None
    try:
        while process.poll() is None:
            now = time.monotonic()
            assert now < deadline, f"neither an end nor output within {PATIENCE_S} s"
            if printed_at is None and output.stat().st_size:
                printed_at = now
            if printed_at is not None and now - printed_at > _ENDS_BY_ITSELF_WITHIN_S:
                os.killpg(process.pid, signal.SIGINT)
                code = process.wait(PATIENCE_S)
                # At its very end, Python leaves the signal to the system.
                return EXIT_INTERRUPTED if code == -signal.SIGINT else code
            time.sleep(_LOOK_EVERY_S)
        return process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
