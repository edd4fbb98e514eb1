"""`scripts/check_words.py` finds the words that we do not use, and nothing else."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.support.kafka_distribution import REPOSITORY

CHECKER = runpy.run_path(str(REPOSITORY / "scripts" / "check_words.py"))


def words(path: Path, *allowed: str) -> list[tuple[int, str]]:
    return [(found.line, found.word) for found in CHECKER["check"](path, allowed)]


def test_a_word_is_found_with_its_line_and_the_word_to_write_instead(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A member joins.\nIt keeps its seat.\n")

    (found,) = CHECKER["check"](page)

    assert str(found) == f"{page}:2: 'seat': write member, slot, generation, standby"


@pytest.mark.parametrize("word", ["whoever", "Whoever", "that there is", "its share", "doors", "is told", "he"])
def test_words_are_found_in_any_case(word: str) -> None:
    assert list(CHECKER["words_in"](f"{word} joins"))


@pytest.mark.parametrize("text", ["share groups (KIP-932)", "indoors", "the", "she", "amended", "take over", "shared"])
def test_other_words_that_contain_one_of_them_are_not(text: str) -> None:
    assert list(CHECKER["words_in"](text)) == []


def test_of_python_only_comments_and_strings_are_checked(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('told = 1  # was told\nname = f"a stranger, {1}"\n"""One\nseat."""\n')

    assert words(module) == [(1, "told"), (2, "stranger"), (4, "seat")]


def test_in_tests_the_words_of_names_are_checked_as_well(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("def test_it_was_told(theHeir, NO_SEATS):\n    return toldest, shared, here_is\n")

    assert [(found.line, found.word) for found in CHECKER["check_names"](module)] == [
        (1, "told"),
        (1, "Heir"),
        (1, "SEATS"),
    ]
    assert CHECKER["instead_of"]("tickets") == "reply handle"


def test_an_allowed_phrase_is_not_found_and_the_word_elsewhere_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("the front door\nthe door\n")

    assert words(page, "front door") == [(2, "door")]


def test_every_allowed_phrase_is_still_needed() -> None:
    checked = CHECKER["files"]([])
    used = {phrase for path in checked for phrase in CHECKER["allowed_phrases"](path) if phrase in path.read_text()}
    lines = [line for line in CHECKER["ALLOWED"].read_text().splitlines() if line and not line.startswith("#")]

    assert used == {line.partition(": ")[2] for line in lines}
