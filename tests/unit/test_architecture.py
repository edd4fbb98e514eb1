"""The structure of the source: no import cycles, functions and files of a size that can be read, a page that is true.

What is above a limit today is listed in `tests/support/limits.py`. The lists may only become shorter.
"""

from __future__ import annotations

import pytest

from tests.support import architecture, limits
from tests.support.package_picture import Picture


def test_modules_do_not_import_each_other_except_those_listed() -> None:
    found = architecture.components(architecture.imports())
    new = [sorted(component) for component in found if not any(component <= set(listed) for listed in limits.CYCLES)]
    assert new == []
    gone = [listed for listed in limits.CYCLES if not any(component <= set(listed) for component in found)]
    assert gone == [], "take it off the list"


def test_functions_are_short_except_those_listed() -> None:
    long = {one.name: one.lines for one in architecture.functions() if one.lines > limits.FUNCTION_LINES}
    assert {name: lines for name, lines in long.items() if lines > limits.LONG_FUNCTIONS.get(name, 0)} == {}
    assert limits.LONG_FUNCTIONS.keys() - long.keys() == set(), "take it off the list"


def test_most_functions_are_very_short() -> None:
    lengths = [one.lines for one in architecture.functions()]
    assert architecture.percentile(lengths, 0.95) <= limits.FUNCTION_LINES_P95


def test_files_are_not_too_long() -> None:
    assert max(architecture.files()).lines <= limits.FILE_LINES


def test_files_can_be_maintained_except_those_listed() -> None:
    low = {
        one.path: one.maintainability for one in architecture.files() if one.maintainability < limits.MAINTAINABILITY
    }
    assert {path: index for path, index in low.items() if index < limits.HARD_TO_MAINTAIN.get(path, 100)} == {}
    assert limits.HARD_TO_MAINTAIN.keys() - low.keys() == set(), "take it off the list"


# -- the page ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", architecture.GENERATED)
def test_the_page_is_up_to_date(name: str) -> None:
    path = architecture.DOCS / name
    assert path.read_text() == architecture.generated()[name], "run python -m tests.support.architecture --write"


def test_the_page_names_every_package() -> None:
    page = architecture.PAGE.read_text()
    parts = architecture.between_parts(architecture.imports())
    assert [package for package in parts if f"`{package}/`" not in page and f"`{package}`" not in page] == []


# -- the tools ---------------------------------------------------------------------------------------------------------


def test_components_are_found_through_any_number_of_modules() -> None:
    graph = {
        "a": frozenset({"b"}),
        "b": frozenset({"c"}),
        "c": frozenset({"a", "d"}),
        "d": frozenset({"e"}),
        "e": frozenset({"d"}),
        "f": frozenset({"a"}),
    }
    assert sorted(map(sorted, architecture.components(graph))) == [["a", "b", "c"], ["d", "e"]]
    assert architecture.components({"a": frozenset({"b"}), "b": frozenset()}) == []


def test_imports_for_types_alone_count() -> None:
    text = (architecture.SOURCE / "cli" / "groups" / "history.py").read_text()
    _, _, for_types = text.partition("if TYPE_CHECKING:")
    assert "from holdfast.client.history import HistoryEvent" in for_types
    assert "holdfast.client.history" in architecture.imports()["holdfast.cli.groups.history"]


def test_a_picture_leaves_out_what_follows_and_puts_importers_above() -> None:
    picture = Picture("three", {"top": frozenset({"middle", "low"}), "middle": frozenset({"low"}), "low": frozenset()})
    assert picture.arrows == [("middle", "low"), ("top", "middle")]
    assert picture.places["top"][1] < picture.places["middle"][1] < picture.places["low"][1]
    assert picture.svg().count("<rect") == 4  # three boxes and the ground


def test_parts_that_import_each_other_are_drawn_as_one() -> None:
    graph = {
        "p.a.x": frozenset({"p.b.x"}),
        "p.b.x": frozenset({"p.c"}),
        "p.b.y": frozenset({"p.a.y"}),
        "p.a.y": frozenset[str](),
        "p.c": frozenset[str](),
    }
    assert architecture.between_parts(graph, "p") == {"a, b": frozenset({"c"}), "c": frozenset()}


def test_lines_of_code_are_without_docstring_comments_and_blanks() -> None:
    text = 'def f(a):\n    """Doc.\n\n    More."""\n    # why\n\n    b = (\n        a\n    )\n    return b\n'
    assert [one.lines for one in architecture._functions_of("x.py", text)] == [5]
