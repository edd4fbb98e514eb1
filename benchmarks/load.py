"""The load generators in C (benchmarks/load.c, benchmarks/members.c): compiled when first needed, run as processes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.measure import Unavailable, per_million
from benchmarks.proc import allow_files
from benchmarks.results import CACHE, REPOSITORY
from benchmarks.servers import Server

_SOURCES: Final = REPOSITORY / "benchmarks"
_PATIENCE_SECONDS: Final = 60
MAX_REQUESTS: Final = 20_000_000


class NoCompiler(Unavailable):
    """The load generator cannot be built."""


@dataclass(frozen=True)
class Load:
    connections: int
    in_flight: int
    seconds: float
    max_requests: int = MAX_REQUESTS


def send(
    load: Load, server: Server, frames: bytes, *, ordered: bool = True, expected: bytes | None = None
) -> dict[str, float]:
    """Sends repeated requests to a server. Returns the figures, including CPU time per million requests.

    With several frames, each connection repeats one of them, in turn. `ordered` checks the correlation id of every
    reply; the echo server has none. `expected` is the required content of every reply after that.
    """
    numbers = (
        server.address[1],
        server.pid,
        load.connections,
        load.in_flight,
        load.seconds,
        load.max_requests,
        int(ordered),
    )
    allow_files(load.connections)
    done = subprocess.run(
        [program("load"), *map(str, numbers), "-" if expected is None else expected.hex()],
        input=frames,
        capture_output=True,
        timeout=load.seconds + _PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the load generator failed: {done.stderr.decode().strip()}")
    said = json.loads(done.stdout)
    if said["odd_sizes"]:
        # Equal requests have responses of equal size here; another size means an error.
        raise RuntimeError(f"{said['odd_sizes']} of {said['requests']} replies differ in size from the first")
    requests, seconds, server_cpu = said["requests"], said["seconds"], said["server_cpu_seconds"]
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
    source = _SOURCES / f"{name}.c"
    # Named by a hash of its source, because checkouts may share a cache, and an older program has other arguments.
    digest = hashlib.sha256(source.read_bytes() + (_SOURCES / "server.h").read_bytes()).hexdigest()[:12]
    compiled = CACHE / f"{name}-{digest}"
    if not compiled.exists():
        fresh = compiled.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", fresh, source], check=True, timeout=60)
        fresh.rename(compiled)
    return compiled
