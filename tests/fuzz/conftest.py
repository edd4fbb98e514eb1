"""What the tests of the fuzzer share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _nobody_keeps_log_lines() -> Iterator[None]:
    """pytest collects what is logged, which looks like a leak."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
