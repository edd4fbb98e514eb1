"""Long work in time slices, so that no request blocks the event loop.

A handler that may have much work is a generator function, and its work may pause at each `yield`. Nearly every request
is finished within one slice and answered at once. Longer work continues with one slice of one request in each iteration
of the event loop, in turn with other long requests. Between two slices all other clients are served. A generator may
also yield an awaitable, such as the result of a worker thread, and is resumed with its result.

A worker thread is no alternative. In Python it would hold the interpreter, and block the event loop, just as long.
Also, handlers read state that the event loop's thread changes (docs/decisions/0016).
"""

from __future__ import annotations

import asyncio
import gc
import heapq
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from time import monotonic
from types import CoroutineType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

K = TypeVar("K")
S = TypeVar("S")
T = TypeVar("T")

Work: TypeAlias = Generator[Any, Any, T]
"""Work that can be done in slices: yields None or an awaitable, and returns the result."""

SLICE_SECONDS: Final = 0.002
"""How long one request runs before others get their turn."""

UNTHROTTLED_SECONDS: Final = 0.05
"""After a request that took longer than this, the connection's next long request is delayed by the same time. One
connection gets at most half of the event loop's time, even if no other needs any."""

SORT_RUN_LENGTH: Final = 2_000
"""The number of names that are sorted at once, in about a millisecond."""

FREE_CHUNK: Final = 100

GC_NEVER: Final = 1_000_000_000
GC_RESUME_SECONDS: Final = 1.0
"""Full garbage collections are enabled again this long after the last long work."""
MAX_SECONDS_WITHOUT_GC: Final = 30.0
"""If one long request follows another, a full collection is allowed after this time."""


class Throttled(Protocol):
    """The connection for which the work is done."""

    throttled_until: float


class SliceScheduler:
    """Runs the work of all requests, one slice at a time."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_granted = False
        self._running = 0
        self._normal_gc_threshold: tuple[int, int, int] | None = None
        self._gc_due_at = 0.0
        self._gc_timer: asyncio.TimerHandle | None = None

    def start(self, work: Work[T], account: Throttled | None = None) -> T | Coroutine[Any, Any, T]:
        """The result if the work takes no longer than a slice, else a coroutine that returns it."""
        until = monotonic() + SLICE_SECONDS
        try:
            while True:
                awaited = next(work)
                if awaited is not None or monotonic() > until:
                    return self._continue(work, awaited, account)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def run(self, work: Work[T], account: Throttled | None = None) -> T:
        """The result of the work, for a coroutine."""
        outcome = self.start(work, account)
        if type(outcome) is CoroutineType:
            return await outcome  # type: ignore[no-any-return]
        return outcome  # type: ignore[return-value]

    async def iterate(self, things: Iterable[T]) -> AsyncIterator[T]:
        """The items one by one, for a coroutine that iterates over many. It pauses between two of them if necessary."""
        until = monotonic() + SLICE_SECONDS
        is_long = False
        try:
            for thing in things:
                if monotonic() > until:
                    if not is_long:
                        is_long = True
                        self._work_started()
                    await self._acquire_slice()
                    self._release_slice()  # the caller may now wait for anything, and others need not wait for it
                    until = monotonic() + SLICE_SECONDS
                yield thing
        finally:
            if is_long:
                self._work_ended()

    async def _continue(self, work: Work[T], awaited: Awaitable[Any] | None, account: Throttled | None) -> T:
        self._work_started()
        spent = 0.0
        try:
            rest_seconds = 0.0 if account is None else account.throttled_until - monotonic()
            while True:
                step: Callable[[], Awaitable[Any] | None] = work.__next__
                if awaited is not None:
                    step = await _outcome_of(awaited, work)
                if rest_seconds > 0:
                    await asyncio.sleep(rest_seconds)
                    rest_seconds = 0
                await self._acquire_slice()
                begun = monotonic()
                try:
                    awaited = _slice(step, work, begun + SLICE_SECONDS)
                finally:
                    spent += monotonic() - begun
                    self._release_slice()
        except StopIteration as done:
            outcome = done.value
        finally:
            work.close()
            self._work_ended()
            if account is not None and spent > UNTHROTTLED_SECONDS:
                account.throttled_until = monotonic() + spent
        return await outcome if type(outcome) is CoroutineType else outcome  # type: ignore[no-any-return]

    # -- slices --------------------------------------------------------------------------------------------------------

    async def _acquire_slice(self) -> None:
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiters.append(mine)
        loop.call_soon(self._grant)  # not now: a future that is done already would not yield to the loop
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._release_slice()  # it was granted, and is not used
            raise

    def _grant(self) -> None:
        while self._waiters and not self._is_granted:
            following = self._waiters.popleft()
            if not following.cancelled():
                self._is_granted = True
                following.set_result(None)

    def _release_slice(self) -> None:
        self._is_granted = False
        if self._waiters:
            asyncio.get_running_loop().call_soon(self._grant)

    # -- the garbage collector -----------------------------------------------------------------------------------------

    def _work_started(self) -> None:
        """Suspends full garbage collections. A large request has some 100,000 objects, which are freed when it is
        answered. Until then, each full collection would visit all of them and block the event loop."""
        self._running += 1
        if self._normal_gc_threshold is None:
            self._normal_gc_threshold = young, middle, _ = gc.get_threshold()
            gc.set_threshold(young, middle, GC_NEVER)
            self._gc_due_at = monotonic() + MAX_SECONDS_WITHOUT_GC
        elif monotonic() > self._gc_due_at:
            self.close()

    def _work_ended(self) -> None:
        self._running -= 1
        if self._running == 0 and self._gc_timer is None:
            # Not at once: the reply is still to be encoded and sent.
            self._gc_timer = asyncio.get_running_loop().call_later(GC_RESUME_SECONDS, self._resume_gc)

    def _resume_gc(self) -> None:
        self._gc_timer = None
        if self._running == 0:
            self.close()

    def close(self) -> None:
        """Restores the garbage collector's thresholds."""
        if self._normal_gc_threshold is not None:
            gc.set_threshold(*self._normal_gc_threshold)
            self._normal_gc_threshold = None


def _slice(step: Callable[[], Awaitable[Any] | None], work: Work[Any], until: float) -> Awaitable[Any] | None:
    """One slice; returns what has to be awaited before the next."""
    awaited = step()
    while awaited is None and monotonic() < until:
        awaited = next(work)
    return awaited


async def _outcome_of(awaited: Awaitable[Any], work: Work[Any]) -> Callable[[], Awaitable[Any] | None]:
    """How the work is resumed: with the value it waited for, or with the error."""
    try:
        value = await awaited
    except Exception as error:  # noqa: BLE001  # for the work to handle
        failure = error
        return lambda: work.throw(failure)
    return lambda: work.send(value)


# -- for handlers, in slices -------------------------------------------------------------------------------------------


def sliced_map(function: Callable[[S], T], things: Iterable[S]) -> Work[list[T]]:
    """As `map`, in slices."""
    made: list[T] = []
    for thing in things:
        yield
        made.append(function(thing))
    return made


def sliced_clear(things: list[Any]) -> Work[None]:
    """Empties a long list that is no longer needed, because freeing it as a whole could not pause."""
    while len(things) > FREE_CHUNK:
        yield
        del things[-FREE_CHUNK:]


def sliced_unique(things: Iterable[K]) -> Work[list[K]]:
    """Without duplicates, in order of first appearance."""
    seen: dict[K, None] = {}
    for thing in things:
        yield
        seen[thing] = None
    return list(seen)


def sliced_count(keys: Iterable[K]) -> Work[Counter[K]]:
    """How often each key occurs."""
    times: Counter[K] = Counter()
    for key in keys:
        yield
        times[key] += 1
    return times


def sliced_sort(names: Iterable[str]) -> Work[list[str]]:
    """Sorted, without duplicates. Short runs are sorted first, because one long sort could not pause."""
    once = yield from sliced_unique(names)
    if len(once) <= SORT_RUN_LENGTH:
        return sorted(once)
    runs: list[list[str]] = []
    for start in range(0, len(once), SORT_RUN_LENGTH):
        yield
        runs.append(sorted(once[start : start + SORT_RUN_LENGTH]))
    return (yield from sliced_map(lambda name: name, heapq.merge(*runs)))
