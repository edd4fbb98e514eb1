"""The command line: commands in groups, options after the command, and help with examples."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from holdfast.cli.exit_codes import EXIT_USAGE

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

Run = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """Reports errors in one line, with a suggestion; the options are in `--help`."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # Refused here, not by the outermost parser, which does not know this command's options.
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._suggest(unknown[0])}")
        return known, []

    def _suggest(self, option: str) -> str:
        name = option.partition("=")[0]
        return suggestion(name, self._option_string_actions) if name.startswith("--") else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            known = ", ".join(action.choices)
            hint = suggestion(str(value), action.choices) or f"; there are {known}"
            self.error(f"there is no command {value!r}{hint}")
        super()._check_value(action, value)


def suggestion(given: str, known: Iterable[str]) -> str:
    import difflib  # only now: few commands are misspelt

    nearest = difflib.get_close_matches(given, list(known), 1, 0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def add_command_group(commands: Commands, name: str, summary: str) -> Commands:
    """A command that has only subcommands."""
    parser = commands.add_parser(name, help=summary, description=_sentence(summary), allow_abbrev=False)
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_command(
    commands: Commands,
    name: str,
    run: Run,
    summary: str,
    examples: Sequence[str],
    details: str = "",
    *,
    needs: str = "",
    packages: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """A command to run. `summary` is shown in the list of commands; each example is a line to paste. `needs` is added
    to the error if the broker denies a request: the permissions, e.g. "READ on the group". `packages` are packages of
    an extra without which the command does not run (holdfast.extras)."""
    parser = commands.add_parser(
        name,
        help=summary,
        description="\n\n".join(part for part in (_sentence(summary), details.strip()) if part),
        epilog="\n".join(["examples:" if len(examples) > 1 else "example:", *(f"  {one}" for one in examples)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run, prog=parser.prog, needs=needs, packages=tuple(packages))
    return parser


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


# -- values of options -------------------------------------------------------------------------------------------------


class CommaList(argparse.Action):
    """`a,b` and a repeated option are combined. Spaces around a comma are dropped."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        names = [name.strip() for name in str(values).split(",")]
        if not all(names):
            parser.error(f"argument {option_string}: {values!r} has an empty name in it")
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), *names])


def whole_number(minimum: int = 0) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {minimum} on")
        return number

    return read


_MIN_S: Final = 0.001
_MAX_S: Final = 2_147_483
"""Settings are in milliseconds: the value must be a positive 32-bit number of them."""


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not _MIN_S <= number <= _MAX_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {_MIN_S} to {_MAX_S}")
    return number


def name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name.strip(), value
