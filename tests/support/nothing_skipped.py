"""`make test` skips nothing because a program is missing; a pytest plugin module."""

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that needs a program is marked `real`; one that is not, and is skipped for it, has failed."""
    report = yield
    if report.skipped and item.get_closest_marker("real") is None:
        why = str(report.longrepr[-1]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if "needs " in why:
            report.outcome = "failed"
            report.longrepr = f"{why}: mark the test as `real`, or install what it needs in `make setup`"
    return report
