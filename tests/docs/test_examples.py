"""The examples in the documentation work when pasted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import REPOSITORY

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def python_blocks() -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(REPOSITORY)} {number}", block)
        for page in PAGES
        for number, block in enumerate(PYTHON.findall(page.read_text()), 1)
    ]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_example_works_when_pasted() -> None:
    (block,) = PYTHON.findall((REPOSITORY / "README.md").read_text())
    with HoldfastBroker() as broker:
        said = run(block.replace("127.0.0.1:9092", broker.bootstrap))

    assert said.strip() == "b'en' b'hello'"


DECLARATION = "from holdfast.wire.fields import *\nfrom holdfast.wire.message import *\n"


@pytest.mark.parametrize(("name", "block"), [b for b in python_blocks() if "README" not in b[0]])
def test_the_pages_examples_run(name: str, block: str) -> None:
    # A page that declares an API which exists already does so only to show how.
    code = block if "= Api(" not in block else DECLARATION + block.replace("= Api(12,", "= Api(32000,")
    run(code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_demo_ends_well() -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / "demo.py")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environment,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "60,000 of 60,000 records seen, nobody was disturbed" in done.stdout
