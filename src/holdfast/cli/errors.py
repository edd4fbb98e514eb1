"""Failures of a command, as one sentence on stderr."""

from __future__ import annotations

import argparse
import sys

from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from holdfast.extras import MissingExtra


class CommandFailed(Exception):
    """The command cannot do what was asked; the message is one sentence for the user."""


class UsageError(Exception):
    """The options are not valid in combination, which argparse cannot check."""


def print_to_stderr(prog: str, sentence: object) -> None:
    """A message for the user: on stderr, so that stdout has the command's output only."""
    print(f"{prog}: {' '.join(str(sentence).split())}", file=sys.stderr)


def describe_error(options: argparse.Namespace, error: Exception) -> str:
    """The error's message, and the permission that is needed if the broker denied the request."""
    from holdfast.client.errors import HoldfastError  # only now: most commands end well

    refused = isinstance(error, HoldfastError) and error.code is not None and "AUTHORIZATION" in error.code.name
    return f"{error}: {missing_permission(options)}" if refused else str(error)


def missing_permission(options: argparse.Namespace) -> str:
    needs = f": it needs {options.needs}" if options.needs else ""
    return f"this user lacks the permission{needs}"


def report_error(options: argparse.Namespace, error: Exception) -> int:
    """Prints the error and returns the exit code; raises exceptions that are bugs rather than failures."""
    # Only now: most commands end well.
    from holdfast.client.errors import ConfigError, HoldfastError

    if isinstance(error, UsageError | ConfigError):
        print_to_stderr(options.prog, error)
        return EXIT_USAGE
    if isinstance(error, CommandFailed | HoldfastError | MissingExtra):
        print_to_stderr(options.prog, describe_error(options, error))
        return EXIT_FAILED
    raise error
