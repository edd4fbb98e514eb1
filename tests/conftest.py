"""What every test may use: brokers, Holdfast's and Apache Kafka's, and a Spark, each started on first use."""

pytest_plugins = ["tests.support.fixtures", "tests.support.holdfast_fixtures", "tests.support.spark_fixtures"]
