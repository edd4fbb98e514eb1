"""Tables that line up, and names that cannot harm a terminal."""

import pytest

from holdfast.cli.output import StreamedTable, printable, table_lines


def test_numbers_are_to_the_right_text_to_the_left_and_no_line_ends_in_spaces() -> None:
    lines = table_lines(("GROUP", "LAG", "HOST"), [("a", 5, "h"), ("longer", 12345, None), ("b", None, "")])
    assert lines == [
        "GROUP     LAG  HOST",
        "a           5  h",
        "longer  12345  -",
        "b           -  -",
    ]


def test_a_column_in_which_nothing_is_is_aligned_like_text() -> None:
    assert table_lines(("A", "LONG", "B"), [("x", None, "y")]) == ["A  LONG  B", "x  -     y"]


def test_a_table_without_rows_is_its_header() -> None:
    assert table_lines(("A", "B"), []) == ["A  B"]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("plain", "plain"),
        ("Zürich 東", "Zürich 東"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("two\nlines", "two\\nlines"),
        ("\u202eevil", "\\u202eevil"),
        (0, "0"),
        ("", "-"),
        (None, "-"),
    ],
)
def test_what_could_move_the_cursor_is_written_out(cell: str | int | None, expected: str) -> None:
    assert printable(cell) == expected


def test_rows_that_come_one_by_one_keep_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    lines = StreamedTable(("A", "B"), (3, 0))
    lines.print_header()
    lines.print(("x", 1))
    lines.print(("longer", 2))
    assert capsys.readouterr().out == "A    B\nx    1\nlonger  2\n"
