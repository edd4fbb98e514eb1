"""Processes that take turns at each step. A run follows from its numbers alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

from tests.unit.spark.pipelines.places import Died


class Actor(threading.Thread):
    """Does its work step by step, whenever it is asked to go on."""

    def __init__(self, work: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._dies = False
        self.is_over = False
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        self._go.acquire()
        try:
            if not self._dies:
                self._work(self._turn)
        except Died:
            pass
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            self.error = error
        self.is_over = True
        self._stopped.release()

    def _turn(self) -> None:
        self._stopped.release()
        self._go.acquire()
        if self._dies:
            raise Died

    def step(self, *, dies: bool = False) -> None:
        self._dies = dies
        self._go.release()
        self._stopped.acquire()
        if self.error is not None:
            raise self.error


def random_numbers(seed: int) -> Iterator[list[int]]:
    chance = random.Random(seed)
    while True:
        yield [chance.randrange(1 << 16) for _ in range(400)]
