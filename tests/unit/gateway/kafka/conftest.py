"""An event loop for each test, asyncio's and uvloop's. It checks that nothing is left over."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, None]], None]

PATIENCE_S = 60.0


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_alone(scenario: Coroutine[Any, Any, None]) -> None:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with asyncio.Runner(loop_factory=request.param) as runner:
                runner.run(_without_rest(scenario))
            gc.collect()  # a socket that nobody closed warns now
        assert [str(one.message) for one in warned] == []

    return run_alone


async def _without_rest(scenario: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await scenario
    for _ in range(100):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            break
        await asyncio.sleep(0.01)
    assert left == set(), "tasks are left over"
