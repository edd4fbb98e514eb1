"""The model's own clock: what it gave up by that it does not own again without joining."""

from __future__ import annotations

from tests.unit.coordinator.harness import SESSION_MS, CoordinatorHarness
from tests.unit.coordinator.reference_client import ReferenceClient


def working(harness: CoordinatorHarness) -> ReferenceClient:
    """Given: a client that is alone in its group and owns everything."""
    client = ReferenceClient(harness, {"t": 2}, "A", 9, cooperative=True)
    while not client.is_working:
        client.act()
        harness.advance(100)
        client.take_reply()
    assert len(client.owned) == 2
    return client


def acts_until(client: ReferenceClient, ms: int) -> None:
    for _ in range(ms // 100):
        client.act()
        client.harness.advance(100)
        client.take_reply()


def test_a_client_that_gave_all_up_before_its_heartbeat_was_answered_joins_again() -> None:
    """It went on as a member that owns nothing, and nobody had its partitions (seed 100457)."""
    # given a client whose last answer is nearly a session old, and a disk that stands still
    harness = CoordinatorHarness(delay_ms=0)
    client = working(harness)
    harness.advance(SESSION_MS - 500)
    harness.pause_appends()
    harness.commit({("t", 0): 1}, member_id=client.id, generation=client.generation, instance="A")

    # when it sends a heartbeat, its own clock runs out, and only then the answer comes
    client.act()
    harness.advance(1_000)
    assert client.owned == set()
    harness.resume_appends()
    client.take_reply()

    # then it joins again, and owns everything
    acts_until(client, 500)
    assert client.is_working and len(client.owned) == 2


def test_a_heartbeat_that_is_answered_in_time_changes_nothing() -> None:
    """The control."""
    harness = CoordinatorHarness(delay_ms=0)
    client = working(harness)
    generation, owned = client.generation, set(client.owned)

    acts_until(client, 2 * SESSION_MS)

    assert (client.generation, client.owned) == (generation, owned)
