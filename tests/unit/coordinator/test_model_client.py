"""The model's own clock: what it gave up by that it does not own again without joining."""

from __future__ import annotations

from tests.unit.coordinator.bench import SESSION_MS, Bench
from tests.unit.coordinator.model_client import ModelClient


def working(bench: Bench) -> ModelClient:
    """Given: a client that is alone in its group and owns everything."""
    client = ModelClient(bench, {"t": 2}, "A", 9, cooperative=True)
    while not client.is_working:
        client.act()
        bench.advance(100)
        client.hear()
    assert len(client.owned) == 2
    return client


def acts_until(client: ModelClient, ms: int) -> None:
    for _ in range(ms // 100):
        client.act()
        client.bench.advance(100)
        client.hear()


def test_a_client_that_gave_all_up_before_its_heartbeat_was_answered_joins_again() -> None:
    """It went on as a member that owns nothing, and nobody had its partitions (life 100457)."""
    # given a client whose last answer is nearly a session old, and a disk that stands still
    bench = Bench(delay_ms=0)
    client = working(bench)
    bench.advance(SESSION_MS - 500)
    bench.hold()
    bench.commit({("t", 0): 1}, member_id=client.id, generation=client.generation, instance="A")

    # when it sends a heartbeat, its own clock runs out, and only then the answer comes
    client.act()
    bench.advance(1_000)
    assert client.owned == set()
    bench.release()
    client.hear()

    # then it joins again, and owns everything
    acts_until(client, 500)
    assert client.is_working and len(client.owned) == 2


def test_a_heartbeat_that_is_answered_in_time_changes_nothing() -> None:
    """The control."""
    bench = Bench(delay_ms=0)
    client = working(bench)
    generation, owned = client.generation, set(client.owned)

    acts_until(client, 2 * SESSION_MS)

    assert (client.generation, client.owned) == (generation, owned)
