"""Results for several items: a line for each on stdout or stderr, or JSON, and the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.cli.errors import describe_error, print_to_stderr
from holdfast.cli.exit_codes import EXIT_FAILED, EXIT_OK
from holdfast.cli.output import print_json, printable

if TYPE_CHECKING:
    from holdfast.client.errors import HoldfastError


def print_results(
    options: argparse.Namespace, name: str, done: str, results: Mapping[str, HoldfastError | None]
) -> int:
    """`name` is the JSON key of an item, `done` describes success."""
    if options.json:
        print_json([{name: one} | error_json(error) for one, error in results.items()])
    else:
        for one, error in results.items():
            if error is None:
                print(f"{printable(one)}: {done}")
            else:
                print_to_stderr(options.prog, describe_error(options, error))
    return EXIT_FAILED if any(results.values()) else EXIT_OK


def error_json(error: HoldfastError | None) -> dict[str, Any]:
    if error is None:
        return {"ok": True, "error": None, "message": None}
    return {"ok": False, "error": None if error.code is None else error.code.name, "message": str(error)}
