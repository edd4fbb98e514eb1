"""`holdfast completion`: completion scripts for shells, generated from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.exit_codes import EXIT_OK
from holdfast.cli.parsing import add_command as add

if TYPE_CHECKING:
    from holdfast.cli.parsing import Commands


def add_command(commands: Commands) -> None:
    parser = add(
        commands,
        "completion",
        run,
        "print a script that completes commands and options in a shell",
        [
            'eval "$(holdfast completion bash)"     # in ~/.bashrc',
            'eval "$(holdfast completion zsh)"      # in ~/.zshrc, after compinit',
            "holdfast completion fish | source      # in ~/.config/fish/config.fish",
        ],
    )
    parser.add_argument("shell", metavar="SHELL", choices=tuple(_SCRIPTS), help=" or ".join(_SCRIPTS))


def run(options: argparse.Namespace) -> int:
    from holdfast.cli.main import build_parser

    print(_SCRIPTS[options.shell](list(_walk(build_parser(), ("holdfast",)))), end="")
    return EXIT_OK


# -- the commands and options to complete ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    names: Sequence[str]
    summary: str
    takes_value: bool
    choices: Sequence[str]
    takes_file: bool


@dataclass(frozen=True, slots=True)
class CommandNode:
    """A command and its possible arguments: `holdfast`, `holdfast groups`, and so on."""

    words: Sequence[str]
    commands: Sequence[tuple[str, str]]
    """The commands that may follow, with their summaries."""
    options: Sequence[Option]
    arguments: Sequence[str]
    """Values that may be given without an option."""
    takes_file: bool

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def candidates(self) -> list[str]:
        options = [name for option in self.options for name in option.names if name.startswith("--")]
        return [name for name, _ in self.commands] + list(self.arguments) + options


def _walk(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[CommandNode]:
    # argparse has no public way to look at a parser; these names have not changed since Python 2.7.
    families = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    children = {name: child for family in families for name, child in family.choices.items()}
    summaries = {one.dest: one.help or "" for family in families for one in family._choices_actions}
    positional = [one for one in parser._actions if not one.option_strings and one not in families]
    yield CommandNode(
        words,
        [(name, summaries.get(name, "")) for name in children],
        [_option(action) for action in parser._actions if action.option_strings],
        [str(choice) for action in positional for choice in action.choices or ()],
        any(action.type is Path for action in positional),
    )
    for name, child in children.items():
        yield from _walk(child, (*words, name))


def _option(action: argparse.Action) -> Option:
    return Option(
        action.option_strings,
        (action.help or "").replace("%%", "%"),
        action.nargs != 0,
        [str(choice) for choice in action.choices or ()],
        action.type is Path,
    )


# -- bash and zsh ------------------------------------------------------------------------------------------------------

_BASH: Final = """\
# Completion of holdfast for bash; made by `holdfast completion bash`.
_holdfast() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" at="holdfast" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$at $word" in
            {places}) at="$at $word" ;;
        esac
    done
    COMPREPLY=()
    case "$at $prev" in
{values}
    esac
    case "$at" in
{candidates}
    esac
}}
complete -F _holdfast holdfast
"""
_ZSH: Final = """\
#compdef holdfast
# Completion of holdfast for zsh; made by `holdfast completion zsh`.
_holdfast() {{
    local prev="${{words[CURRENT-1]}}" at="holdfast" word
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "$at $word" in
            {places}) at="$at $word" ;;
        esac
    done
    case "$at $prev" in
{values}
    esac
    case "$at" in
{candidates}
    esac
}}
if [ "${{funcstack[1]}}" = "_holdfast" ]; then
    _holdfast "$@"
else
    compdef _holdfast holdfast
fi
"""


def _bash(places: Sequence[CommandNode]) -> str:
    return _filled(
        _BASH,
        places,
        words='COMPREPLY=($(compgen -W "{}" -- "$cur"))',
        files='compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur"))',
        words_and_files='COMPREPLY=($(compgen -W "{}" -f -- "$cur"))',
    )


def _zsh(places: Sequence[CommandNode]) -> str:
    return _filled(_ZSH, places, words="compadd -- {}", files="_files", words_and_files="compadd -- {}; _files")


def _filled(script: str, places: Sequence[CommandNode], *, words: str, files: str, words_and_files: str) -> str:
    values = [
        f"        {_patterns(f'{place.name} {name}' for name in option.names)}) "
        f"{_of_value(option, words, files)}return ;;"
        for place in places
        for option in place.options
        if option.takes_value
    ]
    candidates = [
        f'        "{place.name}") '
        f"{(words_and_files if place.takes_file else words).format(' '.join(place.candidates))} ;;"
        for place in places
    ]
    return script.format(
        places=_patterns(place.name for place in places[1:]),
        values="\n".join(values),
        candidates="\n".join(candidates),
    )


def _of_value(option: Option, words: str, files: str) -> str:
    if option.takes_file:
        return f"{files}; "
    return f"{words.format(' '.join(option.choices))}; " if option.choices else ""


def _patterns(names: Iterator[str]) -> str:
    return "|".join(f'"{name}"' for name in names)


# -- fish --------------------------------------------------------------------------------------------------------------


def _fish(places: Sequence[CommandNode]) -> str:
    lines = ["# Completion of holdfast for fish; made by `holdfast completion fish`.", "complete -c holdfast -f"]
    for place in places:
        condition = _fish_condition(place)
        start = f"complete -c holdfast -n {_quoted(condition)}"
        lines += [f"{start} -a {name} -d {_quoted(summary)}" for name, summary in place.commands]
        lines += [f"{start} -a {name}" for name in place.arguments]
        lines += [f"{start} -F"] if place.takes_file else []
        lines += [f"{start} {_fish_option(option)}" for option in place.options]
    return "\n".join(lines) + "\n"


def _fish_condition(place: CommandNode) -> str:
    seen = [f"__fish_seen_subcommand_from {word}" for word in place.words[1:]]
    if place.commands:
        below = " ".join(name for name, _ in place.commands)
        seen.append(f"not __fish_seen_subcommand_from {below}")
    return "; and ".join(seen) or "true"


def _fish_option(option: Option) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    parts = [names, f"-d {_quoted(option.summary)}"]
    if option.choices:
        parts.append(f"-xa {_quoted(' '.join(option.choices))}")
    elif option.takes_value:
        parts.append("-rF" if option.takes_file else "-x")
    return " ".join(parts)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
