"""Log lines: one a line, for people and for machines."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from holdfast.broker.structured_log import BufferedStartupLog, JsonFormatter, TextFormatter, log_event

FORGED = 'x\n2026-01-01 00:00:00,000 ERROR holdfast: all data is lost topic="y"'


@pytest.fixture
def said() -> Iterator[tuple[logging.Logger, io.StringIO, logging.StreamHandler[io.StringIO]]]:
    """A logger, what it has written, and the handler that writes it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.Logger("holdfast.test")
    logger.addHandler(handler)
    yield logger, stream, handler


Logged = tuple[logging.Logger, io.StringIO, logging.StreamHandler[io.StringIO]]


def test_text_is_words_and_fields(said: Logged) -> None:
    logger, stream, handler = said
    handler.setFormatter(TextFormatter())

    log_event(logger, "topic created", topic="orders", partitions=3, configs=None, cause="two words", ratio=0.5)

    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO holdfast\.test: "
        r'topic created topic=orders partitions=3 cause="two words" ratio=0\.5\n',
        stream.getvalue(),
    )


def test_json_is_one_object_a_line(said: Logged) -> None:
    logger, stream, handler = said
    handler.setFormatter(JsonFormatter())

    log_event(logger, "disk full", logging.ERROR, error="no room", bytes=12)
    logger.info("plain %s", "words")

    first, second = map(json.loads, stream.getvalue().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "ERROR",
        "logger": "holdfast.test",
        "event": "disk full",
        "error": "no room",
        "bytes": 12,
    }
    assert (second["event"], second["level"]) == ("plain words", "INFO")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_field_cannot_begin_a_line_of_its_own(said: Logged, formatter: logging.Formatter) -> None:
    logger, stream, handler = said
    handler.setFormatter(formatter)

    log_event(logger, "topic created", topic=FORGED)

    [line] = stream.getvalue().splitlines()
    assert "all data is lost" in line


def test_a_traceback_is_a_field(said: Logged) -> None:
    logger, stream, handler = said
    handler.setFormatter(JsonFormatter())
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("it failed")

    line = json.loads(stream.getvalue())
    assert line["event"] == "it failed"
    assert "ValueError: why" in line["traceback"]


def test_nothing_is_made_of_what_is_below_the_level(said: Logged) -> None:
    logger, stream, _ = said
    logger.setLevel(logging.WARNING)

    log_event(logger, "reported to nobody")
    log_event(logger, "reported", logging.WARNING)

    assert stream.getvalue() == "reported\n"


def test_lines_logged_before_the_level_is_known_are_filtered_by_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a process that does not log yet
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    held = BufferedStartupLog()
    logging.getLogger("holdfast.early").info("early")
    logging.getLogger("holdfast.early").warning("a warning")
    assert capsys.readouterr().err == ""

    # when the config says how to log
    held.release("warning", "json")
    logging.getLogger("holdfast.late").info("late")

    # then only lines of that level are logged, in that format
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["a warning"]
    assert sys.stderr is not None
