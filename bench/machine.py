"""On what the figures were taken. Neither the machine's name nor any path of it is anybody's business."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from holdfast.version import VERSION
from tests.support.kafka_distribution import KafkaUnavailable, kafka_distribution

_PACKAGES: Final = ("uvloop", "confluent-kafka", "kio", "kafka-python")
_QUIET_LOAD: Final = 0.5


def describe() -> dict[str, Any]:
    memory_kib = int(_first(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text()) or 0)
    return {
        "cores": os.cpu_count(),
        "processor": _first(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text()) or platform.machine(),
        "memory_gib": round(memory_kib / (1 << 20), 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "holdfast": VERSION,
        **_kafka(),
        **{package: _version(package) for package in _PACKAGES},
    }


def is_busy() -> bool:
    """Whether somebody else was at work in the last minute."""
    return os.getloadavg()[0] > _QUIET_LOAD


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
