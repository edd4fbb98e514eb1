"""Kafka's classic group protocol. It can be read, and run, without the extensions."""
