"""A group changes its assignment strategy while it works: [old, new] one member at a time, then [new]."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client_compat.servers import Server
from tests.holdfast_client.group_history import generations
from tests.holdfast_client.invariants import processed_twice
from tests.holdfast_client.numbered_workload import Worker, Workload

NAMES = ("a", "b")
SESSION_MS = 20_000


def replace_one_by_one(load: Workload, members: list[Worker], strategy: str) -> None:
    for index, name in enumerate(NAMES):
        members[index].stop()
        members[index] = load.start(name, strategy=strategy, session_timeout_ms=SESSION_MS)
        load.await_idle(*members)
        load.await_progress()


def protocol(load: Workload) -> str | None:
    return generations(load.history())[-1].protocol


@pytest.mark.parametrize(
    ("old", "both", "new"),
    [
        ("range", "range,roundrobin", "roundrobin"),
        # As Kafka documents the way to cooperation: while a member knows an eager strategy it is eager.
        ("range", "cooperative-sticky,range", "cooperative-sticky"),
    ],
    ids=["range-to-roundrobin", "range-to-cooperative"],
)
def test_the_strategy_changes_without_a_stop(
    server: Server, topic: str, group: str, tmp_path: Path, old: str, both: str, new: str
) -> None:
    # given
    load = Workload(server, server.bootstrap, group, topic, tmp_path)
    with load.running():
        members = [load.start(name, strategy=old, session_timeout_ms=SESSION_MS) for name in NAMES]
        load.await_idle(*members)
        assert protocol(load) == old

        # when each is restarted with both, and then again with the new one alone
        replace_one_by_one(load, members, both)
        replace_one_by_one(load, members, new)

        # then the group has changed over, and had members with work all the time
        assert protocol(load) == new
        if new == "cooperative-sticky":
            newcomer_takes_only_its_quota(load, members, new)

    assert processed_twice(load.workers) == set()


def newcomer_takes_only_its_quota(load: Workload, members: list[Worker], strategy: str) -> None:
    before, generation = [one.owned for one in members], generations(load.history())[-1].number
    revocations = [len(one.events_of("revoked")) for one in members]
    newcomer = load.start("newcomer", strategy=strategy, session_timeout_ms=SESSION_MS)
    load.await_idle(*members, newcomer)
    for one, had, count in zip(members, before, revocations, strict=True):
        gone = {partition for event in one.events_of("revoked")[count:] for partition in event.partitions}
        assert gone == had - one.owned, "what stays is never revoked"
    # One generation to take from those who have, one to give; their commits in between bring about no other.
    assert generations(load.history())[-1].number == generation + 2


def test_control_without_the_step_between_a_member_is_turned_away(
    server: Server, topic: str, group: str, tmp_path: Path
) -> None:
    """Why there are two steps."""
    load = Workload(server, server.bootstrap, group, topic, tmp_path)
    with load.running():
        member = load.start("a", strategy="range", session_timeout_ms=SESSION_MS)
        load.await_shared(member)

        hasty = load.start("b", strategy="roundrobin")

        hasty.await_end()
        assert "INCONSISTENT_GROUP_PROTOCOL" in hasty.events_of("failed")[-1].error
        load.await_progress()
