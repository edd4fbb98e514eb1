"""Compares Holdfast with Apache Kafka: `python -m benchmarks` measures, `python -m benchmarks.render` writes the
page."""
