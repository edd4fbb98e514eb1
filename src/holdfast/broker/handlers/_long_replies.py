"""Replies whose number of elements the client decides.

What makes such a reply is a generator that yields after each element and returns the response. A short one is made at
once; what is left of a long one is done, and encoded, in a worker thread. So the generators change nothing but their
response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.broker.dispatch import Encoded
from holdfast.wire.message import encode

T = TypeVar("T")

Work: TypeAlias = Generator[None, None, T]

ELEMENTS_ON_LOOP: Final = 500
"""A millisecond or two of the event loop; a worker thread costs a tenth of that, also for the shortest reply."""


def reply_of(work: Work[T], version: int) -> T | Coroutine[Any, Any, Encoded]:
    try:
        for _ in range(ELEMENTS_ON_LOOP):
            next(work)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # what the generator returns
    return in_worker(lambda: _finished(work), version)


def _finished(work: Work[T]) -> T:
    try:
        while True:
            next(work)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # as above


async def in_worker(make: Callable[[], Any], version: int) -> Encoded:
    return Encoded(await asyncio.to_thread(lambda: encode(make(), version)))
