"""Raw rounds on disk: one JSON file per case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from benchmarks.measure import Result

REPOSITORY: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = REPOSITORY / "benchmarks" / "results"
CACHE: Final = REPOSITORY / ".cache" / "bench"
"""For build products: the compiled load generators."""
QUICK: Final = REPOSITORY / "build" / "bench-quick"
"""For the rounds of quick runs, which must not be mistaken for results."""


def store(result: Result, directory: Path = RESULTS) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result.as_json(), indent=1, ensure_ascii=False)
    (directory / f"{result.case}.json").write_text(text + "\n")


def load(case: str, directory: Path = RESULTS) -> Result | None:
    """The stored rounds of a case; None when it was never measured."""
    path = directory / f"{case}.json"
    return Result.from_json(json.loads(path.read_text())) if path.exists() else None
