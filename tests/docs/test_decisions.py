"""The pages in docs/decisions/ have one form, and README.md there lists all of them."""

import re
from pathlib import Path

import pytest

from tests.support.kafka_distribution import REPOSITORY

DIRECTORY = REPOSITORY / "docs" / "decisions"
PAGES = sorted(DIRECTORY.glob("0*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_status_context_decision_and_consequences(page: Path) -> None:
    text = page.read_text()

    assert re.match(
        rf"# {int(page.name[:4])}\. \S.*\n\n\*\*Status:\*\* (Accepted|Superseded by \[decision \d+\])", text
    )
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]


def test_the_list_of_decisions_is_complete() -> None:
    listed = re.findall(r"^\| (\[.*) \|$", (DIRECTORY / "README.md").read_text(), re.MULTILINE)

    titles = [(page, page.read_text().partition("\n")[0].partition(". ")[2]) for page in PAGES]
    assert listed == [f"[{int(page.name[:4])}]({page.name}) | {title}" for page, title in titles]
