"""`holdfast serve`: run a broker until SIGTERM, SIGINT or SIGHUP."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.exit_codes import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from holdfast.cli.stdio import discard_stdout

if TYPE_CHECKING:
    import asyncio

    from holdfast.broker.config.broker import BrokerConfig
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

GC_THRESHOLDS: Final = (5_000, 4, 25)
"""How many new objects, and then how many collections of the generation before, start a collection of each generation.
A member that joins creates some 25 objects, which stay. With Python's default of 700, they were visited repeatedly: a
third of the CPU time of 5,000 joins, half of that in full collections of 60 ms and more. The middle generation is
collected often enough that a collection takes less than 5 ms."""

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
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="minimum level of log lines on stderr (default: info)",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="format of log lines (default: text)",
    )
    parser.set_defaults(run=run)


def _directory(text: str) -> Path:
    if not text:  # an unset shell variable; as a path it would be the current directory
        raise argparse.ArgumentTypeError("it names no directory")
    return Path(text)


def run(options: argparse.Namespace) -> int:
    # Only now: `holdfast --help` need not wait for asyncio and the broker to be loaded.
    import asyncio

    from holdfast.broker.config.broker import ConfigError, load_config
    from holdfast.broker.server import BrokerError
    from holdfast.broker.structured_log import BufferedStartupLog

    try:
        held = BufferedStartupLog()
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
    with _tuned_garbage_collector():  # before the first long request, which restores the thresholds that it found
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
        address = f"[{host}]:{port}" if ":" in host else f"{host or '0.0.0.0'}:{port}"  # noqa: S104 - shown, not bound
        lines.append(f"holdfast listening on {address}" + (f" ({listener.config.name})" if lines else ""))
        if listener.allows_anonymous and broker.authorizer is None and not listener.config.is_loopback:
            logger.warning(
                "listening on %s without authentication: anyone who can reach this address can read and change all "
                "data",
                address,
            )
        if "PLAIN" in listener.mechanisms and not listener.config.is_encrypted and not listener.config.is_loopback:
            logger.warning("passwords are sent to %s unencrypted: use SASL_SSL, or remove PLAIN", address)
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        raise  # the parent process has exited
    except OSError as error:  # a full disk, most likely: no reason not to serve
        discard_stdout()
        logger.warning("stdout cannot be written (%s); the output was: %s", error.strerror, ", ".join(lines))


def _stop_on_signals() -> asyncio.Event:
    """Set by the first SIGTERM, SIGINT or SIGHUP. A second Ctrl-C ends the process at once."""
    import asyncio

    stopping = asyncio.Event()

    def interrupted() -> None:
        if stopping.is_set():
            os._exit(EXIT_INTERRUPTED)
        stopping.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # `nohup`: the process must outlive its terminal
        loop.add_signal_handler(signal.SIGHUP, stopping.set)
    return stopping


def _listen_option(text: str) -> str:
    """`--listen HOST:PORT` is short for `--set listeners=PLAINTEXT://HOST:PORT`."""
    from holdfast.broker.config.listeners import parse_listener
    from holdfast.broker.config.schema import ConfigError

    try:
        listener = parse_listener("listeners", text)
    except ConfigError:
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST:PORT (an IPv6 address in brackets)") from None
    return f"listeners={listener}"


def _logging_sets(options: argparse.Namespace) -> list[str]:
    """The options that are shortcuts for a config."""
    named = {"logging.level": options.log_level, "logging.format": options.log_format}
    return [f"{name}={value}" for name, value in named.items() if value is not None]


def _raise_file_limit() -> None:
    """A log keeps three files open, a connection one. The usual soft limit of 1024 is for interactive programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _keep_freed_memory() -> None:
    """glibc returns the memory of a produce request to the system and gets it again for the next one, page by page,
    which took nearly half of the CPU time of producing. Let it keep up to 64 MiB. Has no effect on other C
    libraries."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for threshold in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            mallopt(threshold, 64 * 1024 * 1024)


@contextlib.contextmanager
def _tuned_garbage_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop if it is installed, otherwise asyncio's."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
