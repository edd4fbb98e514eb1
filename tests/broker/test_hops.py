"""Requests take a short way through the source; `python -m tests.support.hops --calls Heartbeat` prints one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import hops
from tests.support.limits import WAYS


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, hops.Tracer]:
    return hops.measure(tmp_path_factory.mktemp("hops"))


@pytest.mark.parametrize("request_name", hops.REQUESTS)
def test_a_request_stays_within_its_limits(traced: dict[str, hops.Tracer], request_name: str) -> None:
    way, limit = traced[request_name].way, WAYS[request_name]
    assert way.modules <= limit.modules
    assert way.hops <= limit.hops
    assert way.calls <= limit.calls


def test_the_tracer_sees_the_whole_way(traced: dict[str, hops.Tracer]) -> None:
    """The control: from the socket through the coordinator and the log to the reply."""
    packages = {call.module.split(".")[1] for call in traced["OffsetCommit"].calls}
    assert packages >= {"broker", "coordinator", "log", "wire"}


def test_resumed_generators_and_comprehensions_are_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "traced.py"
    source.write_text(
        "def numbers():\n    for number in range(3):\n        yield inner(number)\n\n"
        "def inner(number):\n    return [number for _ in range(2)]\n\n"
        "def outer():\n    return list(numbers())\n"
    )
    scope: dict[str, object] = {"__name__": "holdfast.broker.network.traced"}
    exec(compile(source.read_text(), str(source), "exec"), scope)  # the file of its code is in our directory
    monkeypatch.setattr(hops, "_ROOT", str(tmp_path))

    with hops.Tracer() as tracer:
        scope["outer"]()  # type: ignore[operator]

    assert [call.function for call in tracer.calls] == ["outer", "numbers", "inner", "inner", "inner"]
    assert [call.depth for call in tracer.calls] == [0, 1, 2, 2, 2]
    assert tracer.way == hops.Way(hops=0, modules=1, calls=5)

    scope["__name__"] = "holdfast.broker.storage.traced"
    with hops.Tracer() as tracer:
        scope["outer"]()  # type: ignore[operator]
    assert tracer.calls == [], "what the network did not begin is no part of a request"
