"""The page in a real browser: whatever groups and members are called, it shows who owned what, and nothing happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.spark.pipelines.forensics.delta_tables import commit_tables
from holdfast.spark.pipelines.forensics.report import Report, html, summarise
from holdfast.spark.pipelines.forensics.report_dir import keep_only
from holdfast.spark.pipelines.forensics.spark_tasks import analyze
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds
from tests.support.browser import Browser, Scheme
from tests.support.page_checks import READABLE, contrasts, overflow
from tests.support.spark_apps import ensured
from tests.unit.spark.pipelines.forensics.histories import History
from tests.unit.spark.pipelines.forensics.test_spark_tasks import facts, in_batches

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

SCRIPT = "<script>document.title = 'taken'</script>"
IMAGE = "<img src=http://127.0.0.1:9/x onerror=\"document.title='taken'\">"
HOSTILE = (
    SCRIPT,
    IMAGE,
    "\"'><svg onload=alert(1)>",
    "javascript:alert(1)//" + "w" * 300,
    "</title></style>\x00\x1b[2J",
)
HOUR_MS = 3_600_000
_SMALLEST_LABEL = """
Math.min(...[...document.querySelectorAll('svg text')].map(
    one => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a
))
"""
"""In pixels of the screen: a drawing is scaled as a whole."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(ensured("chromium-ensure", "a browser")) as made:
        yield made


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Given: groups and members whose names are markup, and partitions that move back and forth between them."""
    directory = tmp_path_factory.mktemp("report")
    given = facts(*(restless(f"orders {name}") for name in HOSTILE))
    (reported,) = [
        row for batch in analyze(in_batches(given), str(directory), ForensicsThresholds()) for row in batch.to_pylist()
    ]
    keep_only(directory, json.loads(reported["files"]))
    commit_tables(directory)
    made = summarise(directory, directory, ["__group_ledger"], {"a kind of <i>record</i>": 3})
    (directory / "timeline.html").write_text(html(directory, made), "utf-8")
    return made


def restless(group: str) -> History:
    history = History(group)
    begin = 1_790_000_000_000
    for generation in range(1, 9):
        present = [name for number, name in enumerate(HOSTILE) if number < 2 or (generation + number) % 3]
        assignments = {f"{name}:{name}": [*range(number, 12, len(present))] for number, name in enumerate(present)}
        history.rebalance(
            begin + generation * HOUR_MS,
            90_000 * generation,
            f"a new {SCRIPT} joined",
            generation,
            assignments,
            present[-1],
        )
    return history


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_owner_is_shown_and_no_name_is_more_than_text(
    browser: Browser, report: Report, width: int, scheme: Scheme
) -> None:
    # when
    browser.errors.clear()
    browser.requests.clear()
    page = report.path / "timeline.html"
    browser.open(page, width, scheme)

    # then all that was drawn is there
    drawings = [report.drawing(row["group_id"]) for row in report.shown]
    cells = sum(len(cells) for drawing in drawings for _, cells in drawing.rows)
    assert browser.ask("document.querySelectorAll('svg rect[fill]').length") == cells > 100
    assert browser.ask("document.querySelectorAll('svg g.rebalance').length") == 8 * len(HOSTILE)
    assert browser.ask("document.querySelectorAll('h2').length") == len(HOSTILE)
    assert browser.ask("document.querySelectorAll('.legend i').length") == sum(len(one.colours) for one in drawings)
    seen = browser.ask(
        "[...document.querySelectorAll('svg rect[fill]')].every(one => one.getBoundingClientRect().width > 0)"
    )
    assert seen is True

    # and nothing else
    assert browser.ask("document.title") == "Consumer group forensics"
    assert browser.ask("document.querySelectorAll('script, img, iframe, h1 *, h2 *').length") == 0
    assert browser.errors == []
    assert browser.requests == [page.as_uri()]

    # and it can be read
    assert browser.ask(_SMALLEST_LABEL) >= 8
    assert overflow(browser) == []
    assert [one for one in contrasts(browser) if one.ratio < READABLE] == []


def test_a_page_that_lets_names_be_markup_is_noticed(browser: Browser, tmp_path: Path) -> None:
    """The control for all of the above."""
    # given
    page = tmp_path / "page.html"
    wide = '<p style="color:#999;background:#aaa;width:3000px">grey</p>'
    page.write_text(f"<!doctype html><title>before</title>{SCRIPT}{IMAGE}<script>nothing()</script>{wide}")

    # when
    browser.errors.clear()
    browser.requests.clear()
    browser.open(page, 400)

    # then
    assert browser.ask("document.title") == "taken"
    assert any("nothing is not defined" in one for one in browser.errors), browser.errors
    assert "http://127.0.0.1:9/x" in browser.requests
    assert [one.partition(" ")[0] for one in overflow(browser)] == ["p"]
    assert [one.text for one in contrasts(browser) if one.ratio < READABLE] == ["grey"]
