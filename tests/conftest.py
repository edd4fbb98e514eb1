"""What every test may use: brokers, Holdfast's and Apache Kafka's, and a Spark, each started on first use."""

from hypothesis import settings

# A shared machine may stop any example for longer than Hypothesis allows; pytest's own time-out catches what hangs.
settings.register_profile("holdfast", deadline=None)
settings.load_profile("holdfast")

pytest_plugins = [
    "tests.support.fixtures",
    "tests.support.holdfast_fixtures",
    "tests.support.nothing_skipped",
    "tests.support.quick_brokers",
    "tests.support.spark_fixtures",
]
