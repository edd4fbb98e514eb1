"""A process that only waits at the broker's tick interval until its stdin ends; prints its maximum lateness in ms.

It measures the machine, as the control for the pauses that a broker reports.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import uvloop

_TICK_SECONDS: Final = 0.05


async def wait() -> float:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    longest = 0.0

    def tick(expected: float) -> None:
        nonlocal longest
        longest = max(longest, loop.time() - expected)
        following = loop.time() + _TICK_SECONDS
        loop.call_at(following, tick, following)

    tick(loop.time())
    await ended.wait()
    return longest * 1000


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(f"{runner.run(wait()):.2f}")
