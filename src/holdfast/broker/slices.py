"""Long work in slices, so that no request holds the event loop.

A handler that may have much to do is a generator function: each `yield` is a place where its work may pause. What is
done within one slice, as nearly every request is, is answered at once. The rest goes on slice by slice, one slice of
one request in each round of the event loop, in turn with the other requests that have more to do; between two slices
everybody else is served. A generator may also yield an awaitable (a worker thread's result, say): it goes on with what
came of it.

Not a worker thread for all of it, because in Python that would hold the interpreter, and with it the event loop, just
as long, and because handlers look at what the event loop's thread changes (docs/decisions/0016).
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
"""What can be done in slices: yields None or an awaitable, and returns the outcome."""

SLICE_SECONDS: Final = 0.002
"""How long one request works before the others have their turn."""

FREE_SECONDS: Final = 0.05
"""A connection whose request took longer than this rests for as long as it took before its next long one begins: so
one connection has half of the event loop's time at most, even if nobody else wants any."""

RUN: Final = 2_000
"""So many names are sorted at once: about a millisecond."""

FREED_AT_ONCE: Final = 100

NEVER: Final = 1_000_000_000
LINGER_SECONDS: Final = 1.0
"""The garbage collector searches as usual again this long after the last long work."""
MOST_SECONDS_WITHOUT_SEARCH: Final = 30.0
"""Also if one long request follows the other: then there is a full search now and again."""


class Resting(Protocol):
    """On whose account the work is done."""

    rests_until: float


class Slices:
    """The long works under way, and whose turn it is."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_granted = False
        self._under_way = 0
        self._usual_threshold: tuple[int, int, int] | None = None
        self._searches_from = 0.0
        self._lingering: asyncio.TimerHandle | None = None

    def begin(self, work: Work[T], account: Resting | None = None) -> T | Coroutine[Any, Any, T]:
        """The outcome if it takes no longer than a slice, else a coroutine that has it later."""
        until = monotonic() + SLICE_SECONDS
        try:
            while True:
                awaited = next(work)
                if awaited is not None or monotonic() > until:
                    return self._go_on(work, awaited, account)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def finish(self, work: Work[T], account: Resting | None = None) -> T:
        """The outcome, for a coroutine that has long work to do."""
        outcome = self.begin(work, account)
        if type(outcome) is CoroutineType:
            return await outcome  # type: ignore[no-any-return]
        return outcome  # type: ignore[return-value]

    async def over(self, things: Iterable[T]) -> AsyncIterator[T]:
        """The things one by one, for a coroutine that goes through many: it pauses between two of them when it must."""
        until = monotonic() + SLICE_SECONDS
        is_long = False
        try:
            for thing in things:
                if monotonic() > until:
                    if not is_long:
                        is_long = True
                        self._started()
                    await self._turn()
                    self._slice_is_over()  # it may wait for anything now: the next one need not wait for that
                    until = monotonic() + SLICE_SECONDS
                yield thing
        finally:
            if is_long:
                self._ended()

    async def _go_on(self, work: Work[T], awaited: Awaitable[Any] | None, account: Resting | None) -> T:
        self._started()
        spent = 0.0
        try:
            rest_seconds = 0.0 if account is None else account.rests_until - monotonic()
            while True:
                step: Callable[[], Awaitable[Any] | None] = work.__next__
                if awaited is not None:
                    step = await _outcome_of(awaited, work)
                if rest_seconds > 0:
                    await asyncio.sleep(rest_seconds)
                    rest_seconds = 0
                await self._turn()
                begun = monotonic()
                try:
                    awaited = _slice(step, work, begun + SLICE_SECONDS)
                finally:
                    spent += monotonic() - begun
                    self._slice_is_over()
        except StopIteration as done:
            outcome = done.value
        finally:
            work.close()
            self._ended()
            if account is not None and spent > FREE_SECONDS:
                account.rests_until = monotonic() + spent
        return await outcome if type(outcome) is CoroutineType else outcome  # type: ignore[no-any-return]

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        loop.call_soon(self._grant)  # not now: awaiting what is there already would let nobody else in
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._slice_is_over()  # it was granted, and is not used
            raise

    def _grant(self) -> None:
        while self._waiting and not self._is_granted:
            following = self._waiting.popleft()
            if not following.cancelled():
                self._is_granted = True
                following.set_result(None)

    def _slice_is_over(self) -> None:
        self._is_granted = False
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._grant)

    # -- the garbage collector -----------------------------------------------------------------------------------------

    def _started(self) -> None:
        """A large request is some 100,000 objects, which go when it is answered. Until then the collector's full search
        would go through all of them, again and again, and hold the event loop for that long."""
        self._under_way += 1
        if self._usual_threshold is None:
            self._usual_threshold = young, middle, _ = gc.get_threshold()
            gc.set_threshold(young, middle, NEVER)
            self._searches_from = monotonic() + MOST_SECONDS_WITHOUT_SEARCH
        elif monotonic() > self._searches_from:
            self.close()

    def _ended(self) -> None:
        self._under_way -= 1
        if self._under_way == 0 and self._lingering is None:
            # Not at once: its answer is still to be encoded and sent.
            self._lingering = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._search_again)

    def _search_again(self) -> None:
        self._lingering = None
        if self._under_way == 0:
            self.close()

    def close(self) -> None:
        """The garbage collector searches as usual again."""
        if self._usual_threshold is not None:
            gc.set_threshold(*self._usual_threshold)
            self._usual_threshold = None


def _slice(step: Callable[[], Awaitable[Any] | None], work: Work[Any], until: float) -> Awaitable[Any] | None:
    """One slice; returns what has to be awaited before the next."""
    awaited = step()
    while awaited is None and monotonic() < until:
        awaited = next(work)
    return awaited


async def _outcome_of(awaited: Awaitable[Any], work: Work[Any]) -> Callable[[], Awaitable[Any] | None]:
    """How the work goes on after what it waited for: with its value, or with its error."""
    try:
        value = await awaited
    except Exception as error:  # noqa: BLE001  # it is the work's to judge
        failure = error
        return lambda: work.throw(failure)
    return lambda: work.send(value)


# -- what handlers do in slices ----------------------------------------------------------------------------------------


def each(function: Callable[[S], T], things: Iterable[S]) -> Work[list[T]]:
    """What the function makes of each of them."""
    made: list[T] = []
    for thing in things:
        yield
        made.append(function(thing))
    return made


def let_go(things: list[Any]) -> Work[None]:
    """Empties a long list that nobody needs any more: to free it as a whole could not pause."""
    while len(things) > FREED_AT_ONCE:
        yield
        del things[-FREED_AT_ONCE:]


def unique(things: Iterable[K]) -> Work[list[K]]:
    """Each of them once, in their order."""
    seen: dict[K, None] = {}
    for thing in things:
        yield
        seen[thing] = None
    return list(seen)


def counted(keys: Iterable[K]) -> Work[Counter[K]]:
    """How often each key is there."""
    times: Counter[K] = Counter()
    for key in keys:
        yield
        times[key] += 1
    return times


def in_order(names: Iterable[str]) -> Work[list[str]]:
    """Sorted, each once: in runs first, because one sort of many could not pause."""
    once = yield from unique(names)
    if len(once) <= RUN:
        return sorted(once)
    runs: list[list[str]] = []
    for start in range(0, len(once), RUN):
        yield
        runs.append(sorted(once[start : start + RUN]))
    return (yield from each(lambda name: name, heapq.merge(*runs)))
