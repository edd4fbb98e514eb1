"""MkDocs hooks: the repository's own pages, README.md among them, become pages of the documentation site."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
LINK = re.compile(r"(\]\(|src=\")(?:(docs/[^)\"]*)|([A-Z]+\.md))")


def on_config(config: MkDocsConfig) -> None:
    """Each decision is in the navigation, below their table."""
    decisions = next(section["Decisions"] for section in config.nav or () if "Decisions" in section)
    decisions += sorted(f"decisions/{page.name}" for page in Path(config.docs_dir, "decisions").glob("0*.md"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=site_links((REPOSITORY / source).read_text())))
    return files


def site_links(markdown: str) -> str:
    """Links from the repository's root become links from `docs/`."""

    def moved(link: re.Match[str]) -> str:
        opening, below_docs, page = link.groups()
        if page:
            return opening + PAGES.get(page, page)
        target = below_docs.removeprefix("docs/")
        return opening + (f"{target}README.md" if target.endswith("/") else target)

    return LINK.sub(moved, markdown)
