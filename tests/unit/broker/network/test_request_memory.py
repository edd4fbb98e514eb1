"""The pool of request memory: bounded, fair, and never lost."""

from __future__ import annotations

import random

from holdfast.broker.network.request_memory import (
    SMALL_BYTES,
    STALLED_BYTES,
    STALLED_SECONDS,
    MemoryPool,
    RequestMemory,
    min_bytes,
)


class Client:
    """Wants memory as a connection does: takes, waits when refused, tries again when called."""

    receiving = True

    def __init__(self, pool: MemoryPool) -> None:
        self.pool = pool
        self.received_bytes = 0
        self.wanted = 0
        self.held = 0
        self.evicted: str | None = None

    def want(self, size: int) -> bool:
        self.wanted = size
        if self.pool.reserve(self, size):
            self.held += size
            self.wanted = 0
        return not self.wanted

    def retry_growth(self) -> None:
        self.want(self.wanted)

    def evict(self, reason: str) -> None:
        self.evicted = reason
        self.pool.forget(self)
        self.held = 0

    def give_back(self) -> None:
        held, self.held = self.held, 0
        self.pool.release(self, held)


def test_released_memory_is_granted_in_the_order_of_requests() -> None:
    pool = MemoryPool(100)
    holder, first, second = Client(pool), Client(pool), Client(pool)
    assert holder.want(100)
    assert not first.want(60)
    assert not second.want(60)

    holder.give_back()

    assert (first.held, second.held) == (60, 0)
    first.give_back()
    assert second.held == 60


def test_all_that_fit_are_served_at_once() -> None:
    pool = MemoryPool(100)
    holder = Client(pool)
    assert holder.want(100)
    waiting = [Client(pool) for _ in range(4)]
    assert not any(client.want(25) for client in waiting)

    holder.give_back()

    assert [client.held for client in waiting] == [25] * 4


def test_a_request_above_the_whole_pool_is_granted_when_the_pool_is_unused() -> None:
    pool = MemoryPool(100)

    assert Client(pool).want(300)


def test_the_only_holder_never_waits_for_itself() -> None:
    pool = MemoryPool(100)
    client = Client(pool)
    assert client.want(60)

    assert client.want(60), "it would wait for memory that only it can give back"


def test_the_end_of_a_client_that_waits_does_not_stop_those_behind_it() -> None:
    pool = MemoryPool(100)
    holder, gone, patient = Client(pool), Client(pool), Client(pool)
    assert holder.want(100)
    assert not gone.want(50)
    assert not patient.want(50)

    pool.forget(gone)
    holder.give_back()

    assert patient.held == 50


def test_a_large_waiter_is_not_overtaken_for_ever_by_small_ones() -> None:
    pool = MemoryPool(100)
    small = [Client(pool) for _ in range(4)]
    assert all(client.want(25) for client in small)
    large = Client(pool)
    assert not large.want(100)

    for turn in range(100):
        client = small[turn % 4]
        client.give_back()
        client.want(25)
        if large.held:
            break

    assert large.held, "a steady stream of small requests starves the large one"


def test_holders_that_hardly_send_go_when_others_wait() -> None:
    pool = MemoryPool(100)
    silent, trickling, sending, waiting = (Client(pool) for _ in range(4))
    assert silent.want(30)
    assert trickling.want(30)
    assert sending.want(40)
    assert not waiting.want(60)

    pool.evict_stalled(1.0)
    trickling.received_bytes += 5
    sending.received_bytes += STALLED_BYTES
    pool.evict_stalled(1.0 + STALLED_SECONDS - 0.1)
    assert silent.evicted is None, "too early"
    pool.evict_stalled(1.0 + STALLED_SECONDS)

    assert silent.evicted is not None
    assert trickling.evicted is not None
    assert sending.evicted is None
    assert waiting.held == 60


MEGABYTE = 1024 * 1024


def test_a_holder_of_much_must_send_faster_than_a_holder_of_little() -> None:
    pool = MemoryPool(20 * MEGABYTE)
    of_much, of_little, fast, waiting = (Client(pool) for _ in range(4))
    assert of_much.want(8 * MEGABYTE)
    assert of_little.want(MEGABYTE // 4)
    assert fast.want(8 * MEGABYTE)
    assert not waiting.want(5 * MEGABYTE)

    pool.evict_stalled(1.0)
    of_much.received_bytes += 20_000 * 5
    of_little.received_bytes += 20_000 * 5
    fast.received_bytes += 2 * MEGABYTE
    pool.evict_stalled(1.0 + STALLED_SECONDS)

    assert of_much.evicted is not None
    assert (of_little.evicted, fast.evicted) == (None, None)
    assert waiting.held == 5 * MEGABYTE


def test_a_slow_holder_of_a_small_request_stays_if_its_requests_come_whole() -> None:
    pool = MemoryPool(1000)
    slow, waiting = Client(pool), Client(pool)
    assert slow.want(900)
    assert not waiting.want(500)

    pool.evict_stalled(1.0)
    slow.received_bytes += 900
    pool.evict_stalled(1.0 + STALLED_SECONDS)

    assert slow.evicted is None


def test_the_whole_memory_cannot_be_held_by_a_trickle() -> None:
    assert [min_bytes(held) for held in (10, STALLED_BYTES, 4 * STALLED_BYTES)] == [10, STALLED_BYTES, STALLED_BYTES]
    assert min_bytes(256 * MEGABYTE) == 64 * MEGABYTE


def test_small_requests_and_large_ones_never_wait_for_each_other() -> None:
    memory = RequestMemory(16 * MEGABYTE)
    small, large = (memory.pool_for(size) for size in (SMALL_BYTES, SMALL_BYTES + 1))
    holder, waiting = Client(large), Client(large)
    assert holder.want(large.limit_bytes)
    assert not waiting.want(MEGABYTE)
    assert memory.has_waiters

    little = [Client(small) for _ in range(small.limit_bytes // SMALL_BYTES)]
    assert all(client.want(SMALL_BYTES) for client in little)
    assert memory.used_bytes == 16 * MEGABYTE
    assert not Client(small).want(SMALL_BYTES), "of their own kind they are bounded too"

    holder.give_back()
    assert waiting.held == MEGABYTE


def test_one_whose_request_is_being_answered_does_not_go() -> None:
    pool = MemoryPool(100)
    answered, waiting = Client(pool), Client(pool)
    answered.receiving = False
    assert answered.want(100)
    assert not waiting.want(10)

    pool.evict_stalled(1.0)
    pool.evict_stalled(1000.0)

    assert answered.evicted is None


def test_the_last_of_holders_that_wait_for_each_other_is_evicted() -> None:
    pool = MemoryPool(100)
    first, last = Client(pool), Client(pool)
    assert first.want(50)
    assert last.want(50)
    assert not first.want(50)
    assert not last.want(50)

    pool.evict_stalled(1.0)

    assert (first.evicted is None, last.evicted is None) == (True, False)
    assert first.held == 100


def test_no_holder_is_evicted_while_none_waits() -> None:
    pool = MemoryPool(100)
    stale = Client(pool)
    assert stale.want(50)

    pool.evict_stalled(1000.0)

    assert stale.evicted is None


def test_random_requests_leave_nothing_reserved_and_no_waiter() -> None:
    rng = random.Random(11)
    pool = MemoryPool(1000)
    clients = [Client(pool) for _ in range(30)]
    for _ in range(5000):
        client = rng.choice(clients)
        if client.held and rng.random() < 0.6:
            client.give_back()
        elif client.wanted and rng.random() < 0.3:
            client.evict("gone")
            client.wanted = 0
        elif not client.wanted:
            client.want(rng.randrange(1, 400))
        assert pool.used_bytes == sum(client.held for client in clients)
        holders = [client for client in clients if client.held]
        assert pool.used_bytes <= pool.limit_bytes or len(holders) == 1, "beyond the limit goes only who is alone"

    while any(client.held for client in clients):
        for client in clients:
            client.give_back()

    assert pool.used_bytes == 0
    assert not any(client.wanted for client in clients), "somebody waits although all memory is free"
