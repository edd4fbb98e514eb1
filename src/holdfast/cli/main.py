"""`holdfast`: finds the subcommand and runs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from holdfast.cli import serve
from holdfast.cli.exit_codes import EXIT_USAGE
from holdfast.version import VERSION


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; the options are in `--help`."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def build_parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
        prog="holdfast", description="Kafka consumer groups that hold still.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"holdfast {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serve.add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
