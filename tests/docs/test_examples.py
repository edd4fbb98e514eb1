"""The examples in the documentation work when pasted."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

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


def test_the_first_examples_work_when_pasted() -> None:
    first, client = PYTHON.findall((REPOSITORY / "README.md").read_text())
    with HoldfastBroker() as broker:
        said = [run(block.replace("127.0.0.1:9092", broker.bootstrap)) for block in (first, client)]

    assert said == ["b'en' b'hello'\n", "b'hello'\n"]


DECLARATION = "from holdfast.wire.fields import *\nfrom holdfast.wire.message import *\n"


BROKER = "127.0.0.1:9092"
"""Where the examples look for one."""
READ_ELSEWHERE = ('"report/', '("lake")')
"""The results that the examples of tests/spark/test_forensics_docs.py and test_land_docs.py read."""


@pytest.mark.parametrize(
    ("name", "block"),
    [
        one
        for one in python_blocks()
        if "README" not in one[0] and BROKER not in one[1] and not any(read in one[1] for read in READ_ELSEWHERE)
    ],
)
def test_the_pages_examples_run(name: str, block: str) -> None:
    # A page that declares an API which exists already does so only to show how.
    code = block if "= Api(" not in block else DECLARATION + block.replace("= Api(12,", "= Api(32000,")
    run(code)


CLIENT_EXAMPLES = {name: block for name, block in python_blocks() if name.startswith("docs/client.md")}
SAID = {
    "docs/client.md 1": r"orders 0 0 b'first order'\n",
    "docs/client.md 2": r"b'first order'\n",
    "docs/client.md 3": r"b'first order'\n",
    "docs/client.md 4": r"\['billing-eu-thread-1', .*, 'billing-eu-thread-4'\]\n",
    "docs/client.md 5": r"\['invoices', 'orders', 'returns'\]\n",
    "docs/client.md 6": r"writing with token \d+\n",
    "docs/client.md 7": r"\{'shard': 0\} 1 True\n",
    "docs/client.md 8": r"(?s:.*)billing-of-8 Stable\n(?s:.*)billing-0 .* \{'orders': \[0\]\}\n"
    r"orders 0 1 1 0\nbilling-0 removed\n",
    "docs/client.md 9": r"billing-1 registered \nbilling-2 registered \n"
    r"\['billing-1', 'billing-2'\]\nbilling-2 cancelled\n",
    "docs/client.md 10": r"standby\.takeover\.ms 5000 \ntarget\.group\.size 2 \n\[\]\n",
    "docs/client.md 11": r"b'first order' \[TopicPartition\{topic=orders,partition=0,.*\]\n",
    "docs/client.md 12": r"0 \d+000000\n",
}
"""What each example of the page prints."""
STATIC_MEMBER, ADMIN = "docs/client.md 3", "docs/client.md 8"


@pytest.fixture(scope="module")
def shop() -> Iterator[HoldfastBroker]:
    """A broker as the page assumes one: with an order in it."""
    with HoldfastBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", value=b"first order")
        assert producer.flush(30) == 0
        yield broker


@pytest.mark.parametrize("name", CLIENT_EXAMPLES)
def test_the_clients_examples_work_when_pasted(name: str, shop: HoldfastBroker) -> None:
    code, static_member = (
        # Each is tried in a group of its own: in one group the second would find that the first has read it all.
        CLIENT_EXAMPLES[one].replace(BROKER, shop.bootstrap).replace('"billing"', f'"billing-of-{name.split()[-1]}"')
        for one in (name, STATIC_MEMBER)
    )
    if name == ADMIN:
        run(static_member)  # whose membership it then gives up

    said = run(code)

    assert re.fullmatch(SAID[name], said), said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
