"""`holdfast serve`: run a broker until SIGTERM, SIGINT or SIGHUP."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.exit_codes import EXIT_OK, EXIT_USAGE
from holdfast.cli.server_process import (
    add_logging_options,
    displayed_address,
    logging_sets,
    print_ready,
    run_event_loop,
    stop_on_signals,
    tuned_garbage_collector,
)

if TYPE_CHECKING:
    from holdfast.broker.config.broker import BrokerConfig
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

_DESCRIPTION: Final = """\
Run a Kafka-compatible broker. When it is ready, its first line on stdout is `holdfast listening on HOST:PORT`;
everything else goes to stderr. SIGTERM, SIGINT or SIGHUP stop it cleanly.
"""
_EPILOG: Final = """\
Configs have the names of Apache Kafka's broker configs, e.g. --set num.partitions=3. Later settings override earlier
ones, and the command line overrides the file. A file may contain "log.segment.bytes" = 1073741824, or nested tables:
[log.segment] followed by bytes = 1073741824. Holdfast's own configs: flush = os (default), always or interval;
logging.level and logging.format, for which --log-level and --log-format are short forms.

examples:
  holdfast serve --data ./data
  holdfast serve --config broker.toml --listen 127.0.0.1:9092 --set num.partitions=3
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "serve",
        help="run a broker",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        dest="sets",
        action="append",
        type=_listen_option,
        help="listener address, or PROTOCOL://HOST:PORT with SSL, SASL_PLAINTEXT or SASL_SSL; port 0 is any free port "
        "(default: 127.0.0.1:9092)",
    )
    parser.add_argument("--data", metavar="DIR", type=_directory, help="data directory (default: ./holdfast-data)")
    parser.add_argument("--config", metavar="FILE.toml", type=Path, help="a TOML file with configs")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", dest="sets", action="append", default=[], help="a config; may be repeated"
    )
    add_logging_options(parser)
    parser.set_defaults(run=run)


def _directory(text: str) -> Path:
    if not text:  # an unset shell variable; as a path it would be the current directory
        raise argparse.ArgumentTypeError("it names no directory")
    return Path(text)


def run(options: argparse.Namespace) -> int:
    # Only now: `holdfast --help` need not wait for the broker to be loaded.
    from holdfast.broker.config.broker import ConfigError, load_config
    from holdfast.broker.server import BrokerError
    from holdfast.broker.structured_log import BufferedStartupLog

    try:
        held = BufferedStartupLog()
        config = load_config(options.config, [*(options.sets or ()), *logging_sets(options)])
        held.release(config.logging_level, config.logging_format)
        if options.data is not None:
            config = config.with_data_dir(options.data)
        run_event_loop(_serve(config))
    except (ConfigError, BrokerError) as error:
        print(f"holdfast serve: {error}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_OK


async def _serve(config: BrokerConfig) -> None:
    from holdfast.broker.server import Broker

    broker = Broker(config, config.data_dir)
    stopping = stop_on_signals()
    with tuned_garbage_collector():  # before the first long request, which restores the thresholds that it found
        await broker.start()
        gc.freeze()  # modules and classes stay as long as the process, so no collection needs to visit them
        try:
            _print_addresses(broker)
            await stopping.wait()
            logger.info("stopping")
        finally:
            await broker.stop()


def _print_addresses(broker: Broker) -> None:
    lines: list[str] = []
    for listener in broker.listeners:
        host, port = listener.address
        address = displayed_address(host, port)
        lines.append(f"holdfast listening on {address}" + (f" ({listener.config.name})" if lines else ""))
        if listener.allows_anonymous and broker.authorizer is None and not listener.config.is_loopback:
            logger.warning(
                "listening on %s without authentication: anyone who can reach this address can read and change all "
                "data",
                address,
            )
        if "PLAIN" in listener.mechanisms and not listener.config.is_encrypted and not listener.config.is_loopback:
            logger.warning("passwords are sent to %s unencrypted: use SASL_SSL, or remove PLAIN", address)
    print_ready(lines)


def _listen_option(text: str) -> str:
    """`--listen HOST:PORT` is short for `--set listeners=PLAINTEXT://HOST:PORT`."""
    from holdfast.broker.config.listeners import parse_listener
    from holdfast.broker.config.schema import ConfigError

    try:
        listener = parse_listener("listeners", text)
    except ConfigError:
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST:PORT (an IPv6 address in brackets)") from None
    return f"listeners={listener}"
