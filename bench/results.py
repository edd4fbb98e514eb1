"""Raw rounds on disk: one JSON file per case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from bench.measure import Result

REPOSITORY: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = REPOSITORY / "bench" / "results"
CACHE: Final = REPOSITORY / ".cache" / "bench"
"""For what is made on the way: the compiled load generator, and quick runs, which must not pass for results."""


def store(result: Result, directory: Path = RESULTS) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result.as_json(), indent=1, ensure_ascii=False)
    (directory / f"{result.case}.json").write_text(text + "\n")


def load(case: str, directory: Path = RESULTS) -> Result | None:
    """The stored rounds of a case; None when it was never measured."""
    path = directory / f"{case}.json"
    return Result.from_json(json.loads(path.read_text())) if path.exists() else None
