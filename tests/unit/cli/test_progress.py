"""Progress is for terminals alone."""

import io

import pytest

from holdfast.cli import progress
from holdfast.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")


def drawn(total: int | None, stream: io.StringIO) -> list[str]:
    with Progress("topics", total, stream) as bar:
        bar.step(1)
        bar.step(3)
    return [line for line in stream.getvalue().split("\r\x1b[K") if line]


def test_a_terminal_sees_a_bar_that_is_gone_in_the_end() -> None:
    terminal = Terminal()
    first, second = drawn(4, terminal)
    assert first == "[########......................]  25%  topics 1"
    assert second == "[##############################] 100%  topics 4"
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_without_a_total_there_is_a_count() -> None:
    assert drawn(None, Terminal()) == ["topics 1", "topics 4"]


def test_nothing_is_drawn_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    drawn(4, pipe)
    assert pipe.getvalue() == ""
    monkeypatch.setenv("TERM", "dumb")
    dumb = Terminal()
    drawn(4, dumb)
    assert dumb.getvalue() == ""


def test_the_number_shown_may_be_another_than_the_part_done() -> None:
    terminal = Terminal()
    with Progress("records", 100, terminal) as bar:
        bar.step(50, count=7)
    assert "50%  records 7" in terminal.getvalue()
