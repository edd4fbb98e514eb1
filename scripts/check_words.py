"""Fails if documentation, comments or tests use a word that we do not use: `python scripts/check_words.py [PATH …]`.

Each word has a plainer one, or Kafka's, in its place (CONTRIBUTING.md, "Style"). Of Python files, comments and strings
are checked; in tests, also the words of which names consist. Ordinary English uses of a word are listed in
`scripts/allowed_words.txt`.
"""

from __future__ import annotations

import fnmatch
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]

CHECKED: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "examples/*.md",
    "examples/**/*.py",
    "benchmarks/**/*.py",
    "src/**/*.py",
    "tests/**/*.py",
    "tests/**/*.go",
    "tests/**/*.java",
    "tests/**/*.js",
    "benchmarks/*.c",
    "benchmarks/*.java",
    "src/holdfast/broker/config/broker_configs.txt",
    "src/holdfast/client/*.txt",
    "scripts/*",
    "Makefile",
    "pyproject.toml",
)
"""What is checked without arguments, as globs. Extend this list to check more files."""
SKIPPED: Final = (
    "docs/group-states.md",
    "docs/performance.md",
    "scripts/allowed_words.txt",
    "scripts/check_words.py",
    "tests/docs/test_words.py",
)
"""Rendered from other files, which are the ones to correct; and this script with its exceptions and its test."""
NAMES_CHECKED: Final = "tests/*"
"""As a pattern of paths: the Python files whose names are checked as well."""

ALLOWED: Final = ROOT / "scripts" / "allowed_words.txt"
"""Lines of `glob: phrase`. In the files that the glob matches, the phrase is not checked."""

_EVERYWHERE: Final = {
    r"anew": "again",
    r"seat(s|ed)?": "member, slot, generation, standby",
    r"doors?|doorways?": "listener, connection",
    r"desks?": "authorizer, batcher",
    r"strangers?": "unauthenticated client, unknown member",
    r"goodbyes?": "close, close_notify, LeaveGroup",
    r"mend(s|ed|ing)?": "correct, repair",
    r"doomed": "expired, to be deleted",
    r"enrich\w*": "aggregate",
    r"heirs?": "standby that takes over",
}
INSTEAD: Final = {
    **_EVERYWHERE,
    r"whoever|whichever": "name the noun: the member that, any client that",
    r"that there (is|are)": "leave it out",
    r"so long after": "that many milliseconds after",
    r"for want of": "because there is no",
    r"one's own": "your own",
    r"he|him|himself": "they, the user, the client",
    r"told|untold": "logged, reported, returned, requested",
    r"(his|her|its|their|a|the|whose|each|every|empty|own|no|of) shares?": "assignment, partitions",
    r"announce[sd]?|announcing|announcements?": "register, registration (KIP-469)",
    r"quiet (call|change)s?": "targeted rejoin, in-generation change",
    r"open places?": "vacancy",
    r"bur(y|ied)": "delete",
    r"take-overs?": "takeover",
    r"time-outs?": "timeout",
}
"""By pattern, what to write instead."""
INSTEAD_IN_NAMES: Final = {
    **_EVERYWHERE,
    r"whoever": "the noun: member, client",
    r"he|him|himself|his": "the noun: user, client",
    r"told|untold|tellers?": "logged, reported, returned, requested",
    r"(un)?announced?|announces|announcing|announcements?": "register, registration (KIP-469)",
    r"tickets?": "reply handle",
}
"""By pattern, what to write instead of a word in a name, such as the word `told` in `was_told`."""
_WORDS: Final = re.compile(rf"\b({'|'.join(f'(?:{pattern})' for pattern in INSTEAD)})\b", re.IGNORECASE)
_WORDS_OF_NAMES: Final = re.compile("|".join(f"(?:{pattern})" for pattern in INSTEAD_IN_NAMES), re.IGNORECASE)
_BETWEEN_WORDS: Final = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])")


class Found(NamedTuple):
    path: Path
    line: int
    word: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}: write {instead_of(self.word)}"


def instead_of(word: str) -> str:
    known = [*INSTEAD.items(), *INSTEAD_IN_NAMES.items()]
    return next(better for pattern, better in known if re.fullmatch(pattern, word, re.IGNORECASE))


def words_in(text: str, allowed: Sequence[str] = ()) -> Iterator[str]:
    for phrase in allowed:
        text = re.sub(re.escape(phrase), "", text, flags=re.IGNORECASE)
    yield from (found[0] for found in _WORDS.finditer(text))


def words_in_name(name: str) -> Iterator[str]:
    yield from (word for word in _BETWEEN_WORDS.split(name) if _WORDS_OF_NAMES.fullmatch(word))


def check(path: Path, allowed: Sequence[str] = ()) -> Iterator[Found]:
    for number, text in _python_prose(path) if path.suffix == ".py" else _lines(path):
        yield from (Found(path, number, word) for word in words_in(text, allowed))


def check_names(path: Path) -> Iterator[Found]:
    """Every use of a name is found, not only its definition."""
    for token in _tokens(path):
        if token.type == tokenize.NAME:
            yield from (Found(path, token.start[0], word) for word in words_in_name(token.string))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return enumerate(path.read_text().splitlines(), 1)


def _python_prose(path: Path) -> Iterator[tuple[int, str]]:
    """The comments and the lines of strings, docstrings included."""
    prose = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in _tokens(path):
        if token.type in prose:
            yield from enumerate(token.string.splitlines(), token.start[0])


def _tokens(path: Path) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(path.read_text()).readline)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()


def allowed_phrases(path: Path) -> list[str]:
    name = _name(path)
    lines = [line for line in ALLOWED.read_text().splitlines() if line and not line.startswith("#")]
    entries = [line.partition(": ") for line in lines]
    return [phrase for glob, _, phrase in entries if fnmatch.fnmatch(name, glob)]


def files(arguments: Sequence[str]) -> list[Path]:
    """A directory stands for the Python files in it."""
    if not arguments:
        skipped = {ROOT / name for name in SKIPPED}
        return sorted({path for glob in CHECKED for path in ROOT.glob(glob) if path.is_file()} - skipped)
    named = [Path(argument).resolve() for argument in arguments]
    return [inner for path in named for inner in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]


def main(arguments: Sequence[str]) -> int:
    checked = files(arguments)
    found = [one for path in checked for one in check(path, allowed_phrases(path))]
    named = [path for path in checked if path.suffix == ".py" and fnmatch.fnmatch(_name(path), NAMES_CHECKED)]
    found += [one for path in named for one in check_names(path)]
    for one in found:
        print(one._replace(path=Path(_name(one.path))), file=sys.stderr)
    if found:
        print(f"{len(found)} words that we do not use; see scripts/check_words.py", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
