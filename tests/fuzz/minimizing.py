"""Which inputs are worth a place in the repository: those that reach the most for their size, as long as there is room.

What an input reaches is counted as steps from line to line in our own code, and as lines in the decoders that it
generates: there are hundreds of those, all alike.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import holdfast

OURS: Final = str(Path(holdfast.__file__).parent)
GENERATED: Final = "<holdfast codec decode"

OVERHEAD_BYTES: Final = 20
"""What an input costs in the file besides itself."""
ROOM_BYTES: Final = 120_000
"""For all of a target's inputs. Hundreds of decoders have thousands of ways to fail; the best of them are enough."""

Arc = tuple[CodeType, int, int]


def reached(run: Callable[[bytes], None], data: bytes) -> set[Arc]:
    """The steps from line to line that the input makes our code take."""
    arcs: set[Arc] = set()

    def enter(frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith((OURS, GENERATED)):
            return None
        by_line = code.co_filename.startswith(GENERATED)
        before = 0

        def step(frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
            nonlocal before
            if event == "line":
                arcs.add((code, 0 if by_line else before, frame.f_lineno))
                before = frame.f_lineno
            return step

        return step

    previous = sys.gettrace()
    sys.settrace(enter)
    try:
        run(data)
    finally:
        sys.settrace(previous)
    return arcs


def minimised(run: Callable[[bytes], None], inputs: dict[str, bytes]) -> dict[str, bytes]:
    """Again and again the input that reaches the most for its size of what is not reached yet."""
    reach: dict[str, set[Arc]] = {}
    for name, data in inputs.items():
        run(data)  # codecs are generated on first use, which is nothing that the input reaches
        reach[name] = reached(run, data)
    known: set[Arc] = set()
    kept: dict[str, bytes] = {}
    room = ROOM_BYTES

    def worth(name: str) -> float:
        return len(reach[name] - known) / (OVERHEAD_BYTES + len(inputs[name]))

    queue = [(-worth(name), name) for name in inputs]
    heapq.heapify(queue)
    while queue:
        _, name = heapq.heappop(queue)
        # What an input adds only shrinks as others are kept, so the first that is still the best is the best.
        now = -worth(name)
        if queue and now > queue[0][0]:
            heapq.heappush(queue, (now, name))
        elif now < 0 and room >= len(inputs[name]) + OVERHEAD_BYTES:
            room -= len(inputs[name]) + OVERHEAD_BYTES
            known |= reach[name]
            kept[name] = inputs[name]
    return kept
