"""`holdfast`: finds the command and runs it."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from holdfast.cli.errors import CommandFailed, report_error
from holdfast.cli.exit_codes import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED
from holdfast.cli.parsing import Parser, Run
from holdfast.cli.stdio import discard_stdout, open_closed_streams
from holdfast.extras import check_installed
from holdfast.version import VERSION

COMMANDS: Final = ("serve", "gateway", "groups", "topics", "produce", "consume", "pipeline", "users", "completion")
"""Each is a module beside this one, with an `add_command`."""


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """With the options of this command only, if it exists, so that starting a broker does not load the others."""
    parser: argparse.ArgumentParser = Parser(
        prog="holdfast", description="Kafka consumer groups that hold still.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"holdfast {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in (command,) if command in COMMANDS else COMMANDS:
        import_module(f"holdfast.cli.{name}").add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    open_closed_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser(words[0] if words else None).parse_args(words)
    try:
        return _run(options)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        discard_stdout()
        return EXIT_BROKEN_PIPE


def _run(options: argparse.Namespace) -> int:
    run: Run = options.run
    if "prog" not in options:
        return run(options)  # `serve` and `gateway` report errors themselves
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is not a failure
    try:
        check_installed("this command", options.packages)
        code = run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:  # most likely stdout is a file on a full disk
        discard_stdout()
        return report_error(options, CommandFailed(f"the output cannot be written: {error.strerror}"))
    except Exception as error:  # noqa: BLE001  # raised again if it is a bug
        return report_error(options, error)
    return code


if __name__ == "__main__":
    sys.exit(main())
