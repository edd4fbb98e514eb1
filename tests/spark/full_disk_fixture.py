"""A disk without room, in the place of a directory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def full_disk(directory: Path) -> Iterator[None]:
    """What was in the directory is there again afterwards. Skips the test where nothing may be mounted."""
    size = ["mount", "-t", "tmpfs", "-o", "size=4k", "full", str(directory)]
    mounted = subprocess.run(size, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a small disk: {mounted.stderr.strip()}")
    try:
        (directory / "takes it all").write_bytes(b"x" * 4096)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
