"""Replies that may have as many elements as a client cares to ask for: made and encoded in a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from holdfast.broker.dispatch import Encoded
from holdfast.wire.message import encode

MAX_ELEMENTS_ON_LOOP: Final = 500
"""A millisecond or two of the event loop; a worker thread costs a tenth of that, also for the shortest reply."""


def reply_of(elements: int, make: Callable[[], Any], version: int) -> Any | Coroutine[Any, Any, Encoded]:
    """What `make` makes, at once if it has few elements. `make` may run in another thread: it must change nothing."""
    return make() if elements <= MAX_ELEMENTS_ON_LOOP else in_worker(make, version)


async def in_worker(make: Callable[[], Any], version: int) -> Encoded:
    return Encoded(await asyncio.to_thread(lambda: encode(make(), version)))
