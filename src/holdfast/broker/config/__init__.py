"""Broker, topic and group configs under Kafka's names, and how they are described and altered."""
