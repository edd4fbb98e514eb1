"""Holdfast and Apache Kafka side by side: `python -m bench` measures, `python -m bench.render` writes the page."""
