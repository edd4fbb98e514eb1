"""`holdfast serve` when it is expected to end by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def serve_and_end(data: Path, *options: str, listen: str = "127.0.0.1:0") -> tuple[int, str]:
    """Exit code and stderr of a broker that should refuse to start."""
    command = [sys.executable, "-m", "holdfast", "serve", "--listen", listen, "--data", str(data), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    return done.returncode, done.stderr


def refusal(data: Path, *options: str, listen: str = "127.0.0.1:0") -> str:
    """The one sentence with which the broker refuses to start; its exit code must be 2."""
    exit_code, said = serve_and_end(data, *options, listen=listen)
    lines = [line for line in said.splitlines() if " INFO " not in line]
    assert exit_code == 2, said
    assert len(lines) == 1, said
    assert lines[0].startswith("holdfast serve: "), said
    return lines[0]
