"""Helpers that do not depend on Kafka: tasks that are not cancelled, work in slices, watched files."""
