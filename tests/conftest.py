"""What every test may use: brokers, Holdfast's and Apache Kafka's, and a Spark, each started on first use."""

import gc

import pytest
from hypothesis import settings

# A shared machine may stop any example for longer than Hypothesis allows; pytest's own timeout catches what hangs.
settings.register_profile("holdfast", deadline=None)
settings.load_profile("holdfast")

pytest_plugins = [
    "tests.support.fixtures",
    "tests.support.gateway_fixtures",
    "tests.support.holdfast_fixtures",
    "tests.support.nothing_skipped",
    "tests.support.quick_brokers",
    "tests.support.spark_fixtures",
]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The thousands of tests that were collected live as long as the process. The garbage collector need not search
    them again and again, and a forked child need not copy them."""
    gc.collect()
    gc.freeze()
