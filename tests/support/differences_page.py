"""The tables of docs/differences.md, for tests that hold the page to what is true."""

from __future__ import annotations

import re

from tests.support.kafka_distribution import REPOSITORY

PAGE = REPOSITORY / "docs" / "differences.md"

MISSING_APIS = 61
OTHER_VERSIONS = 62


def difference(number: int) -> str:
    """The heading with this number and the text below it, up to the next heading."""
    found = re.search(rf"^### {number}\. .*?(?=^##|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{PAGE.name} has no number {number}"
    return found[0]


def rows(number: int) -> list[list[str]]:
    """The rows of the table under a number, without its heading."""
    lines = [line.strip() for line in difference(number).splitlines()]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return table[2:]


def missing_apis() -> dict[int, str]:
    """Key → name of the APIs that are listed as not served."""
    listed = [(int(key), name) for key, name, *_ in rows(MISSING_APIS)]
    assert len(dict(listed)) == len(listed), "a key is listed twice"
    return dict(listed)


def other_versions() -> dict[int, tuple[str, str, str]]:
    """Key → name, and the versions of Kafka and of Holdfast."""
    return {int(key): (name, kafkas, ours) for key, name, kafkas, ours, *_ in rows(OTHER_VERSIONS)}
