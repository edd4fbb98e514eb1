"""Kafka Connect and Kafka Streams, and how a program of theirs is run."""

from functools import cache
from pathlib import Path

from tests.support.java_assignors import need_compiler
from tests.support.kafka_distribution import KafkaDistribution, run_script

JVM_OPTIONS = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A small JVM that is soon ready."""


@cache
def kafka_apps() -> KafkaDistribution:
    """Their jars, brought into the cache if they are not there yet; KafkaUnavailable where they cannot be run."""
    java = run_script("java-ensure")
    need_compiler(java)
    return KafkaDistribution(java=Path(java), libs=Path(run_script("kafka-apps-ensure")))


def kafka_app_command(program: str, *arguments: str, log_level: str = "INFO") -> list[str]:
    """The command line for a class of theirs, or for a program of one file of Java source."""
    return kafka_apps().command(program, *arguments, jvm_options=(*JVM_OPTIONS, f"-Dlog.level={log_level}"))
