"""The machine of the measurements, without its name and paths."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from benchmarks.results import REPOSITORY
from holdfast.version import VERSION
from tests.support.kafka_distribution import KafkaUnavailable, kafka_distribution

CHANGED: Final = "-changed"
_GIT_TIMEOUT_S: Final = 30
_PACKAGES: Final = ("uvloop", "confluent-kafka", "kio", "kafka-python")
_SOURCE: Final = "src"


def describe() -> dict[str, Any]:
    memory_kib = int(_first(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text()) or 0)
    return {
        "cores": os.cpu_count(),
        "processor": _first(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text()) or platform.machine(),
        "memory_gib": round(memory_kib / (1 << 20), 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "holdfast": VERSION,
        **_kafka(),
        **{package: _version(package) for package in _PACKAGES},
    }


def commit() -> str:
    """The checked-out commit, with a mark if the source has changed since; "unknown" outside a Git repository."""
    head = _git("rev-parse", "--short", "HEAD")
    if head is None:
        return "unknown"
    return f"{head}{CHANGED}" if _git("diff", "--quiet", "HEAD", "--", _SOURCE) is None else head


def has_same_source(taken_at: str) -> bool:
    """Whether the source of Holdfast is the same as at a commit that `commit` reported."""
    if taken_at in ("", "unknown") or taken_at.endswith(CHANGED):
        return False
    return _git("diff", "--quiet", taken_at, "--", _SOURCE) is not None


def _git(*arguments: str) -> str | None:
    """The output of Git; None if it fails."""
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run(
        [git, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=_GIT_TIMEOUT_S
    )
    return done.stdout.strip() if done.returncode == 0 else None


def _kafka() -> dict[str, str]:
    try:
        distribution = kafka_distribution()
    except KafkaUnavailable:
        return {}
    said = subprocess.run([distribution.java, "-version"], capture_output=True, text=True, check=False, timeout=30)
    jars = [jar.name for jar in distribution.libs.glob("kafka-clients-*.jar")]
    return {
        "apache_kafka": _first(r"kafka-clients-([\d.]+)\.jar", " ".join(jars)) or "unknown",
        "java": _first(r'version "([^"]+)"', said.stderr) or "unknown",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1].strip() if found else None
