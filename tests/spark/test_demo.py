"""`make demo`: what a newcomer runs first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.spark.pipelines.forensics.report_dir import PAGE_FILE
from tests.support.browser import Browser
from tests.support.eventually import eventually
from tests.support.kafka_distribution import REPOSITORY
from tests.support.page_checks import READABLE, contrasts, overflow
from tests.support.process_tree import command_line
from tests.support.spark_apps import ensured, spark_environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(1300)]

WITHIN_S = 1200
"""Four minutes on a machine of its own. The demo itself gives up on what does not happen."""


class Demo(NamedTuple):
    ended: subprocess.CompletedProcess[str]
    out: Path
    directory: Path
    """For its temporary files."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Given: the demo, played to its end."""
    directory = tmp_path_factory.mktemp("demo")
    out = directory / "out"
    ended = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--out", str(out)],
        cwd=REPOSITORY,
        env=spark_environment(Path(sys.executable), TMPDIR=str(directory)),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return Demo(ended, out, directory)


def test_the_demo_shows_what_it_says_and_leaves_nothing_behind(demo: Demo) -> None:
    assert demo.ended.returncode == 0, demo.ended.stdout + demo.ended.stderr
    report = json.loads((demo.out / "report.json").read_text())
    assert report["as_expected"] is True
    assert report["static"]["rebalances"] == 0 < report["dynamic"]["rebalances"]
    assert report["static"]["rebalances_by_the_scale_up"] == 1 < report["dynamic"]["rebalances_by_the_scale_up"]
    for name in ("static", "dynamic"):
        assert (demo.out / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert list(demo.directory.glob("holdfast-*")) == []
    eventually(lambda: not running(demo.directory), "the end of all that it has started")


def running(directory: Path) -> list[str]:
    """The command lines with its name in them. A killed process may take a moment to end."""
    lines = [command_line(int(path.name)) for path in Path("/proc").glob("[0-9]*")]
    return [line for line in lines if str(directory) in line]


def test_its_page_shows_the_owners_of_partitions_in_both_groups(demo: Demo) -> None:
    page = demo.out / "forensics" / PAGE_FILE
    with Browser(ensured("chromium-ensure", "a browser")) as browser:
        # when
        browser.open(page, 1280)

        # then
        titles = browser.ask("[...document.querySelectorAll('h2')].map(one => one.textContent)")
        assert sorted(titles) == ["billing-dynamic", "billing-static"]
        assert browser.ask("document.querySelectorAll('svg').length") == 2
        reported = browser.ask("[...document.querySelectorAll('svg rect[fill] title')].map(one => one.textContent)")
        assert {line.split("\n")[1] for line in reported} == {
            f"orders-{kind}-{partition}" for kind in ("static", "dynamic") for partition in range(12)
        }
        assert (browser.errors, browser.requests) == ([], [page.as_uri()])
        assert overflow(browser) == []
        assert [one for one in contrasts(browser) if one.ratio < READABLE] == []
