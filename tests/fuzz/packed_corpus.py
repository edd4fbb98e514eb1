"""The corpus: one text file for each target, one input a line.

    <name> <the input in base64>

Inputs that a run kept for their coverage are named by their digest. An input that once broke something has a name that
says what, and stays whatever it covers.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).with_name("corpus")
DIGEST_CHARS: Final = 12


def file_of(target: str) -> Path:
    return CORPUS / f"{target}.txt"


def digest_name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_CHARS]


def is_finding(name: str, data: bytes) -> bool:
    """Whether the input was named by a person, for what it broke."""
    return name != digest_name(data)


def read(target: str) -> dict[str, bytes]:
    """The inputs by name."""
    inputs: dict[str, bytes] = {}
    for line in file_of(target).read_text().splitlines():
        name, _, encoded = line.partition(" ")
        inputs[name] = base64.b64decode(encoded, validate=True)
    return inputs


def write(target: str, inputs: dict[str, bytes]) -> None:
    lines = [f"{name} {base64.b64encode(data).decode()}\n" for name, data in sorted(inputs.items())]
    file_of(target).write_text("".join(lines))


def unpack(inputs: dict[str, bytes], directory: Path) -> None:
    """One file for each input, as libFuzzer wants them."""
    for name, data in inputs.items():
        (directory / name).write_bytes(data)


def gather(directory: Path) -> dict[str, bytes]:
    found = [path.read_bytes() for path in directory.iterdir() if path.is_file()]
    return {digest_name(data): data for data in found}
