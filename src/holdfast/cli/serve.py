"""`holdfast serve`: run a broker until SIGTERM, SIGINT or SIGHUP."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.exit_codes import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from holdfast.cli.streams import give_up_stdout

if TYPE_CHECKING:
    from holdfast.broker.config import BrokerConfig
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_DESCRIPTION: Final = """\
Run a Kafka-compatible broker. When it is ready, its first line on stdout is `holdfast listening on HOST:PORT`;
everything else goes to stderr. SIGTERM, SIGINT or SIGHUP stop it cleanly.
"""
_EPILOG: Final = """\
Configs have the names of Apache Kafka's broker configs, e.g. --set num.partitions=3. Later settings win over earlier
ones, and the command line over the file. A file may hold "log.segment.bytes" = 1073741824, or nested tables:
[log.segment] with bytes = 1073741824 below it. Holdfast's own: flush = os (default), always or interval;
logging.level and logging.format, which --log-level and --log-format are short for.

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
        help="where to listen, or PROTOCOL://HOST:PORT with SSL, SASL_PLAINTEXT or SASL_SSL; port 0 takes a free one "
        "(default: 127.0.0.1:9092)",
    )
    parser.add_argument(
        "--data", metavar="DIR", type=_directory, help="where the data is kept (default: ./holdfast-data)"
    )
    parser.add_argument("--config", metavar="FILE.toml", type=Path, help="a TOML file with configs")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", dest="sets", action="append", default=[], help="one config; may be repeated"
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="what is logged to stderr (default: info)",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="lines for people or for machines (default: text)",
    )
    parser.set_defaults(run=run)


def _directory(text: str) -> Path:
    if not text:  # a shell's variable that is not set; as a path it would be the current directory
        raise argparse.ArgumentTypeError("it names no directory")
    return Path(text)


def run(options: argparse.Namespace) -> int:
    # Only now: `holdfast --help` need not wait for the broker to be loaded.
    from holdfast.broker.config import ConfigError, load_config
    from holdfast.broker.log_lines import HeldBack
    from holdfast.broker.server import BrokerError

    try:
        held = HeldBack()
        config = load_config(options.config, [*(options.sets or ()), *_logging_sets(options)])
        held.release(config.logging_level, config.logging_format)
        if options.data is not None:
            config = config.with_data_dir(options.data)
        _raise_file_limit()
        _keep_freed_memory()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config))
    except (ConfigError, BrokerError) as error:
        print(f"holdfast serve: {error}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_OK


async def _serve(config: BrokerConfig) -> None:
    from holdfast.broker.server import Broker

    broker = Broker(config, config.data_dir)
    stopping = _stop_on_signals()
    await broker.start()
    try:
        _announce(broker)
        await stopping.wait()
        logger.info("stopping")
    finally:
        await broker.stop()


def _announce(broker: Broker) -> None:
    lines: list[str] = []
    for door in broker.doors:
        host, port = door.address
        address = f"[{host}]:{port}" if ":" in host else f"{host or '0.0.0.0'}:{port}"  # noqa: S104 - shown, not bound
        lines.append(f"holdfast listening on {address}" + (f" ({door.listener.name})" if lines else ""))
        if door.is_open_to_anybody and broker.users is None and not door.listener.is_loopback:
            logger.warning(
                "listening on %s without authentication: whoever can reach this address can read and change all data",
                address,
            )
        if "PLAIN" in door.mechanisms and not door.listener.is_encrypted and not door.listener.is_loopback:
            logger.warning("passwords come to %s unencrypted: use SASL_SSL, or leave out PLAIN", address)
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        raise  # whoever started it has gone already
    except OSError as error:  # a full disk, most likely: no reason not to serve
        give_up_stdout()
        logger.warning("stdout cannot be written (%s); it would say: %s", error.strerror, ", ".join(lines))


def _stop_on_signals() -> asyncio.Event:
    """Set by the first SIGTERM, SIGINT or SIGHUP. Whoever presses Ctrl-C twice does not want to wait for that."""
    stopping = asyncio.Event()

    def interrupted() -> None:
        if stopping.is_set():
            os._exit(EXIT_INTERRUPTED)
        stopping.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # `nohup`: it is to outlive its terminal
        loop.add_signal_handler(signal.SIGHUP, stopping.set)
    return stopping


def _listen_option(text: str) -> str:
    """`--listen HOST:PORT` is short for `--set listeners=PLAINTEXT://HOST:PORT`."""
    from holdfast.broker.config_keys import ConfigError
    from holdfast.broker.listener import parse_listener

    try:
        listener = parse_listener("listeners", text)
    except ConfigError:
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST:PORT (an IPv6 address in brackets)") from None
    return f"listeners={listener}"


def _logging_sets(options: argparse.Namespace) -> list[str]:
    """The options that are short for a config."""
    named = {"logging.level": options.log_level, "logging.format": options.log_format}
    return [f"{name}={value}" for name, value in named.items() if value is not None]


def _raise_file_limit() -> None:
    """A log keeps three files open, a connection one: the usual soft limit of 1024 is for interactive programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _keep_freed_memory() -> None:
    """glibc hands the memory of a produce request back to the system and fetches it again for the next one, page by
    page: nearly half of the CPU time of producing. Let it keep up to 64 MiB. Another C library goes its own way."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for threshold in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            mallopt(threshold, 64 * 1024 * 1024)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
