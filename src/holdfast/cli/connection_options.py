"""The options of every command that connects to a broker: its address, and authentication."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.errors import UsageError
from holdfast.cli.parsing import seconds
from holdfast.cli.properties import parse_properties

if TYPE_CHECKING:
    from holdfast.client.admin import Admin

ENVIRONMENT: Final = "HOLDFAST_BOOTSTRAP_SERVERS"
TIMEOUT_S: Final = 15.0
"""Shorter than the client's default of a minute, because a user is waiting at the terminal."""
CLIENT_ID: Final = "holdfast-cli"


def add_connection_options(parser: argparse.ArgumentParser, *, timeout: bool = True) -> None:
    """`timeout=False` for commands that have one of their own."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"a broker, or several separated by commas (default: {ENVIRONMENT} in the environment)",
    )
    group.add_argument(
        "--command-config",
        metavar="FILE",
        type=Path,
        help="a file of name=value lines with librdkafka's names, for TLS, SASL and the like",
    )
    if timeout:
        group.add_argument(
            "--timeout",
            metavar="SECONDS",
            type=seconds,
            default=TIMEOUT_S,
            help=f"how long to wait for the brokers (default: {TIMEOUT_S:g})",
        )


def client_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The client configuration of this command."""
    from_file = read_properties_file(options.command_config)
    check_client_settings(options.command_config, from_file)
    settings: dict[str, Any] = {"client.id": CLIENT_ID} | from_file
    servers = options.bootstrap_server or settings.get("bootstrap.servers") or os.environ.get(ENVIRONMENT)
    if not servers:
        raise UsageError(f"no broker is named: give --bootstrap-server HOST:PORT, or set {ENVIRONMENT}")
    return settings | {"bootstrap.servers": servers}


def open_admin(options: argparse.Namespace, timeout_s: float | None = None) -> Admin:
    """Waits for the brokers as long as `--timeout` says, unless the command means something else by it."""
    from holdfast.client.admin import Admin

    wait_s: float = options.timeout if timeout_s is None else timeout_s
    return Admin({"default.api.timeout.ms": int(wait_s * 1000)} | client_settings(options))


def read_properties_file(path: Path | None) -> dict[str, str]:
    """The settings in a file of name=value lines; none without a file."""
    if path is None:
        return {}
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {why}") from error
    return parse_properties(text)


def check_client_settings(where: object, settings: Mapping[str, str]) -> None:
    """`where` they are from. Every message names settings, never their values."""
    from holdfast.client.admin import NAMES
    from holdfast.client.config import read_config
    from holdfast.client.errors import ConfigError
    from holdfast.client.security import Security

    try:
        Security.from_config({name: value for name, value in settings.items() if name not in NAMES})
        read_config(settings, {}, NAMES)
    except ConfigError as error:
        raise UsageError(f"{where}: {error}") from error
    if "OAUTHBEARER" in (settings.get("sasl.mechanism"), settings.get("sasl.mechanisms")):
        raise UsageError(f"{where}: OAUTHBEARER needs a function that fetches tokens, which no file can hold")
