"""The load generator in C (bench/load.c): compiled when first needed, run as a process."""

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

_SOURCE: Final = REPOSITORY / "bench" / "load.c"
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


def send(load: Load, server: Server, frame: bytes, *, ordered: bool = True) -> dict[str, float]:
    """Put a load of one repeated request on a server; its figures, CPU per million requests among them.

    `ordered` checks the correlation id of every reply; the echo server has none.
    """
    numbers = (server.address[1], load.connections, load.in_flight, load.seconds, load.max_requests, int(ordered))
    cpu_before = cpu_seconds(server.pid)
    done = subprocess.run(
        [_program(), *map(str, numbers)],
        input=frame,
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
def _program() -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("no C compiler (cc) on this machine: install one to measure small requests and flushes")
    CACHE.mkdir(parents=True, exist_ok=True)
    program = CACHE / "load"
    if not program.exists() or program.stat().st_mtime < _SOURCE.stat().st_mtime:
        subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", program, _SOURCE], check=True, timeout=60)
    return program
