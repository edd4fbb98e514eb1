"""Java properties files: `name=value` lines, comments, continued lines, escapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_NAME_AND_VALUE: Final = re.compile(r"((?:\\.|[^\\:=\s])*)[ \t\f]*(?:[:=][ \t\f]*)?(.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """If a name is repeated, its last value counts. There are no syntax errors, as in Java."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _NAME_AND_VALUE.fullmatch(line)
        if match:
            found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines that are not blank or comments, each joined with its continuation lines."""
    pending = ""
    for line in text.splitlines():
        part = line.lstrip(" \t\f")
        if not pending and (not part or part[0] in "#!"):
            continue
        backslashes = len(part) - len(part.rstrip("\\"))
        if backslashes % 2:
            pending += part[:-1]
        else:
            yield pending + part
            pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    def meant(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2]) if match[2] else ""

    return _ESCAPE.sub(meant, text)
