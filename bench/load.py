"""The load generators in C (bench/load.c, bench/members.c): compiled when first needed, run as processes."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from bench.measure import per_million
from bench.proc import cpu_seconds
from bench.results import CACHE, REPOSITORY
from bench.servers import Server

_SOURCES: Final = REPOSITORY / "bench"
_PATIENCE_SECONDS: Final = 60
MAX_REQUESTS: Final = 20_000_000


class NoCompiler(Exception):
    """The load generator cannot be built; the message is one line that says why."""


@dataclass(frozen=True)
class Load:
    connections: int
    in_flight: int
    seconds: float
    max_requests: int = MAX_REQUESTS


def send(
    load: Load, server: Server, frames: bytes, *, ordered: bool = True, expected: bytes | None = None
) -> dict[str, float]:
    """Put a load of repeated requests on a server; its figures, CPU per million requests among them.

    With several frames, one after the other, each connection repeats one of them. `ordered` checks the correlation id
    of every reply; the echo server has none. `expected` is what every reply must hold after that.
    """
    numbers = (server.address[1], load.connections, load.in_flight, load.seconds, load.max_requests, int(ordered))
    cpu_before = cpu_seconds(server.pid)
    done = subprocess.run(
        [program("load"), *map(str, numbers), "-" if expected is None else expected.hex()],
        input=frames,
        capture_output=True,
        timeout=load.seconds + _PATIENCE_SECONDS,
        check=False,
    )
    server_cpu = cpu_seconds(server.pid) - cpu_before
    if done.returncode != 0:
        raise RuntimeError(f"the load generator failed: {done.stderr.decode().strip()}")
    said = json.loads(done.stdout)
    if said["odd_sizes"]:
        # Equal questions have answers of equal size here; another size is an error message.
        raise RuntimeError(f"{said['odd_sizes']} of {said['requests']} replies differ in size from the first")
    requests, seconds = said["requests"], said["seconds"]
    return {
        "requests": requests,
        "seconds": seconds,
        "requests_per_s": requests / seconds,
        "p50_us": said["p50_us"],
        "p99_us": said["p99_us"],
        "reply_bytes": said["reply_bytes"],
        "server_cpu_per_million": per_million(server_cpu, requests),
        "client_cpu_per_million": per_million(said["cpu_seconds"], requests),
        "server_cores": server_cpu / seconds,
        "client_cores": said["cpu_seconds"] / seconds,
    }


@cache
def program(name: str) -> Path:
    """The load generator of this name, compiled if that has not been done yet."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("no C compiler (cc) on this machine: install one to measure requests, groups and flushes")
    CACHE.mkdir(parents=True, exist_ok=True)
    source, compiled = _SOURCES / f"{name}.c", CACHE / name
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", compiled, source], check=True, timeout=60)
    return compiled
