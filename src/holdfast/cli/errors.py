"""Failures of a command, as one sentence on stderr."""

from __future__ import annotations

import argparse
import sys

from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from holdfast.extras import MissingExtra


class CommandFailed(Exception):
    """What was asked for cannot be done; the message is the sentence."""


class UsageError(Exception):
    """The command makes no sense as it was given, in a way that only shows once its options are read."""


def say(prog: str, sentence: object) -> None:
    """A sentence for the person at the terminal: on stderr, so that the output stays what it is."""
    print(f"{prog}: {' '.join(str(sentence).split())}", file=sys.stderr)


def told(options: argparse.Namespace, error: Exception) -> str:
    """The error's own words, and what a user whom the broker refused has to be granted."""
    from holdfast.client.errors import HoldfastError  # only now: most commands end well

    refused = isinstance(error, HoldfastError) and error.code is not None and "AUTHORIZATION" in error.code.name
    return f"{error}: {lacking(options)}" if refused else str(error)


def lacking(options: argparse.Namespace) -> str:
    needs = f": it needs {options.needs}" if options.needs else ""
    return f"this user lacks the permission{needs}"


def report(options: argparse.Namespace, error: Exception) -> int:
    """Says what went wrong and returns the exit code; raises what is no failure of the command but a bug of ours."""
    # Only now: most commands end well.
    from holdfast.client.errors import ConfigError, HoldfastError

    if isinstance(error, UsageError | ConfigError):
        say(options.prog, error)
        return EXIT_USAGE
    if isinstance(error, CommandFailed | HoldfastError | MissingExtra):
        say(options.prog, told(options, error))
        return EXIT_FAILED
    raise error
