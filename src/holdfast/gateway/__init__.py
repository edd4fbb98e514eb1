"""Holdfast's groups in front of an Apache Kafka cluster: clients reach every broker through the gateway."""
