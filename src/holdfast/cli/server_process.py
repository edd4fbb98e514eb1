"""What `holdfast serve` and `holdfast gateway` share: a process that serves until a signal stops it."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.cli.exit_codes import EXIT_INTERRUPTED
from holdfast.cli.stdio import discard_stdout

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger(__name__)

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

GC_THRESHOLDS: Final = (5_000, 4, 25)
"""How many new objects, and then how many collections of the generation before, start a collection of each generation.
A member that joins creates some 25 objects, which stay. With Python's default of 700, they were visited repeatedly: a
third of the CPU time of 5,000 joins, half of that in full collections of 60 ms and more. The middle generation is
collected often enough that a collection takes less than 5 ms."""

_Result = TypeVar("_Result")


# -- options -----------------------------------------------------------------------------------------------------------


def add_logging_options(parser: argparse.ArgumentParser) -> None:
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


def logging_sets(options: argparse.Namespace) -> list[str]:
    """The configs that these options are short forms of."""
    named = {"logging.level": options.log_level, "logging.format": options.log_format}
    return [f"{name}={value}" for name, value in named.items() if value is not None]


# -- running -----------------------------------------------------------------------------------------------------------


def run_event_loop(program: Coroutine[Any, Any, _Result]) -> _Result:
    # Only now: `holdfast --help` need not wait for asyncio to be loaded.
    import asyncio

    _raise_file_limit()
    _keep_freed_memory()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(program)


def stop_on_signals() -> asyncio.Event:
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


@contextlib.contextmanager
def tuned_garbage_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def displayed_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host or '0.0.0.0'}:{port}"  # noqa: S104 - shown, not bound


def print_ready(lines: Sequence[str]) -> None:
    """The lines by which the parent process sees that this one serves."""
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        raise  # the parent process has exited
    except OSError as error:  # a full disk, most likely: no reason not to serve
        discard_stdout()
        logger.warning("stdout cannot be written (%s); the output was: %s", error.strerror, ", ".join(lines))


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


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop if it is installed, otherwise asyncio's."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
