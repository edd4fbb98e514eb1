"""Links to a section lead to a heading that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_examples import PAGES
from tests.support.kafka_distribution import REPOSITORY

ALL_PAGES = [*PAGES, REPOSITORY / "CHANGELOG.md", REPOSITORY / "CONTRIBUTING.md"]
LINK = re.compile(r"\]\(([^):#]*\.md)?#([^)]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    headings = HEADING.findall(CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_to_sections_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        linked = page.parent / target if target else page
        assert anchor in anchors(linked), f"{page.name} links to {target}#{anchor}"


def test_an_anchor_is_made_of_a_heading_without_its_punctuation(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("## Replace `confluent_kafka.Consumer`\n```\n# no heading\n```\n### What's new, and why?\n")

    assert anchors(page) == {"replace-confluent_kafkaconsumer", "whats-new-and-why"}
