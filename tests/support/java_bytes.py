"""The bytes that members of Apache Kafka's own client write, and what they read in ours.

What Java wrote is kept in `tests/unit/assignors/java_bytes.json`, so that no JVM is needed to compare with it;
`tests/kafka_parity/test_bytes_like_java.py` asks Java again. After a change of the cases write them again:

    python -m tests.support.java_bytes
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.support.java_assignors import java_command
from tests.support.kafka_distribution import REPOSITORY

SOURCE = REPOSITORY / "tests" / "java" / "MemberBytes.java"
STORED = REPOSITORY / "tests" / "unit" / "assignors" / "java_bytes.json"

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
NEVER_ASSIGNED = -1
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Written:
    """What a member was given in which generation, and what it then says of itself; bytes in hex."""

    assignor: str
    topics: list[str]
    given: dict[str, list[int]]
    generation: int
    rack: str | None
    assignment: str | None
    """As the leader writes it; None for a member that was never assigned anything."""
    user_data: str | None
    subscription: str


def stored() -> list[Written]:
    return [Written(**one) for one in json.loads(STORED.read_text("utf-8"))]


def ask_java(questions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of one JVM, one for each question."""
    asked = "".join(json.dumps(one) + "\n" for one in questions)
    done = subprocess.run(
        java_command(SOURCE), input=asked, capture_output=True, encoding="utf-8", timeout=_PATIENCE_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the JVM ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def written_by_java() -> list[Written]:
    questions = cases()
    return [
        Written(**question, **{"assignment": None} | answer)
        for question, answer in zip(questions, ask_java(questions), strict=True)
    ]


def cases() -> list[dict[str, Any]]:
    """Always the same: the smallest members by hand, the others by a seed."""
    plain: list[dict[str, Any]] = [
        {"topics": ["t"], "given": {}, "generation": NEVER_ASSIGNED, "rack": None},
        {"topics": ["t"], "given": {}, "generation": 1, "rack": None},
        {"topics": ["t"], "given": {"t": [0, 3]}, "generation": 7, "rack": None},
        {"topics": ["t"], "given": {"t": [0, 3]}, "generation": 7, "rack": "rack-1"},
        {"topics": ["a", "b", "c"], "given": {"c": [2], "a": [0, 1]}, "generation": 2**31 - 1, "rack": None},
        # Names whose order is another by code units than by code points, and which share a bucket of a hash table.
        {"topics": ["\uffee", "\U0001f600", "Aa", "BB"], "given": {"Aa": [0], "BB": [0], "\uffee": [1]}},
    ]
    rng = random.Random(881)
    plain += [_random_case(rng) for _ in range(6)]
    usual = {"generation": 3, "rack": None}
    return [{"assignor": name} | usual | one for name in ASSIGNORS for one in plain]


def _random_case(rng: random.Random) -> dict[str, Any]:
    """Up to forty topics: a hash table of Java's grows with the thirteenth and the twenty-fifth."""
    topics = [f"{rng.choice(('orders', 'т', 'x.y', 'A'))}-{number}" for number in range(rng.randint(1, 40))]
    given = {
        topic: sorted(rng.sample(range(50), rng.randint(1, 4)))
        for topic in rng.sample(topics, rng.randint(1, len(topics)))
    }
    return {
        "topics": topics,
        "given": given,
        "generation": rng.randint(1, 1000),
        "rack": rng.choice((None, "r1", "süd")),
    }


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(asdict(one)) for one in written_by_java())
    STORED.write_text(f"[\n{lines}\n]\n", "utf-8")
