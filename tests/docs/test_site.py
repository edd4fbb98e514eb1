"""`make docs`: the site builds, a broken link fails the build, and no page loads anything from another host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.browser import Browser
from tests.support.eventually import eventually
from tests.support.kafka_distribution import REPOSITORY

HTML_LOADS = re.compile(
    r'<(?:script|link|img|iframe|source|object|embed)\b[^>]*?\b(?:src|href|data)="?(?:https?:)?//[^ ">]*'
)
CSS_LOADS = re.compile(r"(?:url\(|@import\s)[\"']?(?:https?:)?//[^)\"']*")


def build(site: Path, config: Path = REPOSITORY / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", config, "--site-dir", site],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("docs") / "site"
    done = build(directory)
    assert done.returncode == 0, done.stderr
    return directory


def test_every_page_of_the_documentation_is_in_the_site(site: Path) -> None:
    sources = {page.relative_to(REPOSITORY / "docs") for page in (REPOSITORY / "docs").rglob("*.md")}
    sources |= {Path("index.md"), Path("changelog.md"), Path("contributing.md")}
    expected = {str(page.with_suffix(".html")).replace("README", "index") for page in sources}

    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}

    assert built == expected | {"404.html"}


def test_no_page_loads_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not HTML_LOADS.findall(text), page.name
        # For these elements the theme's script loads Mermaid from a CDN and a repository's figures from its host.
        assert 'class="mermaid"' not in text, page.name
        assert 'data-md-component="source"' not in text, page.name
    for sheet in site.rglob("*.css"):
        assert not CSS_LOADS.findall(sheet.read_text()), sheet.name


def test_loads_from_another_host_are_recognised() -> None:
    assert HTML_LOADS.findall('<script async src="https://example.org/a.js">')
    assert HTML_LOADS.findall('<link rel="stylesheet" href="//example.org/a.css">')
    assert not HTML_LOADS.findall('<a href="https://example.org/">')
    assert CSS_LOADS.findall("@font-face{src:url(https://example.org/a.woff)}")


BROKEN = {
    "[a page](missing.md)": "'missing.md'",
    "[an anchor](broker.md#missing-there)": "'#missing-there'",
    "[an anchor of this page](#missing-here)": "'#missing-here'",
}
"""Links, and what the build says of each."""


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs")
    with (tmp_path / "docs" / "cli.md").open("a") as page:
        page.writelines(f"\n{link}\n" for link in BROKEN)
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {REPOSITORY}/mkdocs.yml\ndocs_dir: docs\nhooks: [{REPOSITORY}/scripts/docs_hooks.py]\n"
    )

    done = build(tmp_path / "site", config)

    assert done.returncode != 0
    for complaint in BROKEN.values():
        assert re.search(rf"WARNING.*'cli\.md'.*{complaint}", done.stderr), done.stderr


def test_make_docs_runs_a_strict_build() -> None:
    """`mkdocs build --quiet` neither prints nor counts warnings, so that a broken link passes."""
    done = subprocess.run(["make", "-n", "docs"], cwd=REPOSITORY, capture_output=True, text=True, check=True)

    (command,) = [line for line in done.stdout.splitlines() if "mkdocs" in line]
    assert command.endswith("/mkdocs build")


@pytest.mark.real
def test_the_site_works_when_opened_from_a_file(site: Path) -> None:
    """Including search, without a request to any host, and on a phone."""
    found = subprocess.run([REPOSITORY / "scripts" / "chromium-ensure"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    with Browser(Path(found.stdout.strip())) as browser:
        for page in sorted(set(site.rglob("*.html")) - {site / "404.html"}):  # whose links are for a server
            browser.open(page, 390, "dark")
            assert browser.ask("document.documentElement.scrollWidth") <= 390, f"{page.name} is wider than a phone"
        browser.open(site / "index.html", 1280)
        browser.ask(TYPE_A_QUERY)
        eventually(lambda: browser.ask(f"{RESULTS}.length") > 0, "search results")
        hits = browser.ask(f"Array.from({RESULTS}, hit => hit.getAttribute('href'))")

        assert any("operations.html" in hit for hit in hits), hits
        assert not browser.errors
        assert {urlsplit(url).scheme for url in browser.requests} <= {"file", "data", "about", "blob"}


TYPE_A_QUERY = """
document.querySelector("[data-md-toggle=search]").click();
const box = document.querySelector("[data-md-component=search-query]");
box.focus();
box.value = "standby";
box.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
"""
RESULTS = 'document.querySelectorAll(".md-search-result__link")'
