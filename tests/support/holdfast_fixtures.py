"""The Holdfast broker that tests share; a pytest plugin module."""

from collections.abc import Generator, Iterator

import pytest

from tests.support.fixtures import KEEPS_ALL
from tests.support.holdfast_broker import HoldfastBroker

_LOG_TAIL_CHARS = 4000


@pytest.fixture(scope="session")
def holdfast() -> Iterator[HoldfastBroker]:
    """One broker for the whole run (one per xdist worker): make topics of your own and leave the rest alone."""
    with HoldfastBroker(KEEPS_ALL) as broker:
        yield broker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what the brokers it used had to say."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, HoldfastBroker):
                report.sections.append((f"log of {name}", value.log_text()[-_LOG_TAIL_CHARS:]))
    return report
