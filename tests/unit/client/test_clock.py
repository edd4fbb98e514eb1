"""One module reads the time and waits: the rest of the client gets a clock passed in."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import holdfast.client
from holdfast.client import clock

PACKAGE = Path(holdfast.client.__file__).parent
CLOCK = Path(clock.__file__)
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != CLOCK)
FORBIDDEN = {"time", "datetime", "sched"}
WAITS = {"wait", "wait_for", "poll", "join", "sleep", "select"}
"""Methods of threading's and select's objects that wait if they are given a timeout."""
WAITS_WITHOUT_LIMIT = {"wait", "join"}
"""Those of them that also wait without one."""
NOT_A_WAIT = {"clock", "_clock", "_waker", "_fetcher", "_reader", "_consumer", "membership"}
"""Objects with a method of such a name: the clock, what waits through it, librdkafka, and a membership (`join`)."""


def offences(source: str) -> list[str]:
    return [found for node in ast.walk(ast.parse(source)) if (found := _offence(node)) is not None]


def _offence(node: ast.AST) -> str | None:
    match node:
        case ast.Import(names):
            return next((f"import {one.name}" for one in names if one.name.split(".")[0] in FORBIDDEN), None)
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in FORBIDDEN:
            return f"from {module}"
        case ast.Call(ast.Attribute(owner, name), args, keywords) if name in WAITS:
            if not args and not keywords and name not in WAITS_WITHOUT_LIMIT:
                return None
            if _last_name(owner) not in NOT_A_WAIT and not isinstance(owner, ast.Constant):
                return f"line {node.lineno}: {ast.unparse(node)}"
    return None


def _last_name(owner: ast.expr) -> str:
    return owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_module_of_the_client_reads_the_time_or_waits_by_itself(path: Path) -> None:
    assert offences(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "import datetime",
        "event.wait()",
        "event.wait(1)",
        "self._changed.wait(timeout=1)",
        "thread.join()",
        "thread.join(timeout)",
        "poll.poll(0)",
        "select.select([], [], [], 1)",
    ],
)
def test_control_each_way_to_wait_is_found(source: str) -> None:
    assert len(offences(source)) == 1


def test_control_strings_and_the_clock_are_not() -> None:
    assert offences("', '.join(names); self._clock.wait(event, None)") == []
