"""A broker that failed is left alone, ever longer, never outside the bounds."""

import random

from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.cluster_client import backoff_within

NOW = 1000.0


def delays(least_s: float, most_s: float, seed: int, count: int) -> list[float]:
    backoff = backoff_within(least_s, most_s, random.Random(seed))
    found = []
    for _ in range(count):
        backoff.failed(NOW)
        found.append(backoff.ready_at - NOW)
    return found


@given(least_ms=st.integers(0, 1000), more_ms=st.integers(0, 10_000), seed=st.integers(0, 1 << 30))
def test_every_delay_is_within_the_bounds(least_ms: int, more_ms: int, seed: int) -> None:
    least_s, most_s = least_ms / 1000, (least_ms + more_ms) / 1000
    assert all(least_s - 1e-9 <= delay <= most_s + 1e-9 for delay in delays(least_s, most_s, seed, 50))


def test_delays_grow_to_the_longest_and_differ_between_clients() -> None:
    mine, yours = (delays(0.1, 10.0, seed, 12) for seed in (1, 2))
    assert mine[0] < 0.2
    assert mine[-1] >= 7.5
    assert mine != yours


def test_success_starts_over() -> None:
    backoff = backoff_within(0.1, 10.0, random.Random(1))
    for _ in range(2000):
        backoff.failed(NOW, "refused")
    backoff.succeeded()
    assert backoff.ready_at == 0.0
    backoff.failed(NOW)
    assert backoff.ready_at - NOW < 0.2
