"""The options with which a command connects to Kafka itself, past the gateway."""

from __future__ import annotations

import argparse
from pathlib import Path

from holdfast.cli.connection_options import check_client_settings, read_properties_file
from holdfast.cli.parsing import name_and_value


def add_kafka_options(parser: argparse.ArgumentParser, kafka_help: str, *, of_subcommand: bool = False) -> None:
    """A subcommand has its options in common with the command: what was given before its name is kept."""
    default = argparse.SUPPRESS if of_subcommand else None
    group = parser.add_argument_group("Kafka")
    group.add_argument("--kafka", metavar="[ID=]HOST:PORT,…", default=default, help=kafka_help)
    group.add_argument(
        "--kafka-config",
        metavar="FILE",
        type=Path,
        default=default,
        help="a file of name=value lines with librdkafka's names, for TLS, SASL and the like towards Kafka",
    )
    group.add_argument(
        "--kafka-set",
        metavar="NAME=VALUE",
        type=name_and_value,
        action="append",
        default=default,
        help="one such setting; may be repeated, and overrides the file",
    )


def kafka_properties(options: argparse.Namespace) -> dict[str, str]:
    """The settings of the client towards Kafka; UsageError for one that is unknown or invalid."""
    properties = read_properties_file(options.kafka_config) | dict(options.kafka_set or ())
    check_client_settings(options.kafka_config or "--kafka-set", properties)
    return properties
