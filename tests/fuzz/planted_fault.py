"""A fault that only somebody who follows the branches finds: by chance it takes four thousand million inputs."""

from __future__ import annotations


def run(data: bytes) -> None:
    for position, expected in enumerate(b"hold"):
        if len(data) <= position or data[position] != expected:
            return
    raise KeyError("the planted fault")
