"""The broker is killed in the middle of join, sync and commit, and restarted under consumers at work.

The invariants of `invariants.py` are checked at the end of every test, as in `test_kills.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT
from holdfast.wire.apis.sync_group import SYNC_GROUP
from tests.holdfast_client.conftest import BOTH_SERVERS, own_broker
from tests.holdfast_client.group_history import generations
from tests.holdfast_client.numbered_workload import Worker, Workload
from tests.holdfast_client.pausing_proxy import PausingProxy, Side
from tests.holdfast_client.proxied_broker import ProxiedBroker

SESSION_MS = 30_000
"""Starts over when the broker is back; its members need a moment to find it."""
QUICK_KAFKA = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
"""So that its controller lets a killed broker in again after two seconds, instead of nine."""


@pytest.fixture(scope="module", params=BOTH_SERVERS)
def killable(request: pytest.FixtureRequest) -> Iterator[ProxiedBroker]:
    """A broker of these tests' own. Each leaves it running: a start of Apache Kafka is dear."""
    with PausingProxy() as wire:
        settings = {"advertised.listeners": f"PLAINTEXT://{wire.bootstrap}"}
        with own_broker(request, settings | (QUICK_KAFKA if request.param == "kafka" else {})) as broker:
            wire.forward_to(broker.address)
            yield ProxiedBroker(broker, wire)


def start(load: Workload, name: str, strategy: str, *, is_static: bool) -> Worker:
    instance_id = name if is_static else None
    return load.start(name, strategy=strategy, instance_id=instance_id, session_timeout_ms=SESSION_MS)


JOIN, SYNC, COMMIT = JOIN_GROUP.key, SYNC_GROUP.key, OFFSET_COMMIT.key


@pytest.mark.parametrize(
    ("strategy", "is_static", "moments"),
    [
        ("range", True, [(JOIN, Side.REPLY), (COMMIT, Side.REPLY)]),
        ("cooperative-sticky", False, [(SYNC, Side.REQUEST)]),
    ],
    ids=["range-static", "cooperative-dynamic"],
)
def test_the_broker_is_killed_in_join_sync_and_commit(
    killable: ProxiedBroker,
    topic: str,
    group: str,
    tmp_path: Path,
    strategy: str,
    is_static: bool,
    moments: list[tuple[int, Side]],
) -> None:
    # given a member at work
    load = killable.workload(group, topic, tmp_path)
    with load.running():
        members = [start(load, "first", strategy, is_static=is_static)]
        load.await_shared(*members)
        for key, side in moments:
            # when the broker dies in the middle of it (a newcomer brings about joins and syncs)
            hold = killable.proxy.hold("first", key, side)
            if key != COMMIT:
                members.append(start(load, f"newcomer-{len(members)}", strategy, is_static=is_static))
            hold.await_caught()
            killable.broker.kill()
            hold.drop()
            assert all(member.is_alive for member in members)
            killable.broker.start()
            # then the group goes on with it
            load.await_shared(*members)
            load.await_progress()
        assert not any(member.events_of("failed") for member in members)


def test_assignments_are_kept_and_commits_continue_through_restarts(
    killable: ProxiedBroker, topic: str, group: str, tmp_path: Path
) -> None:
    # given
    load = killable.workload(group, topic, tmp_path)
    with load.running():
        members = [start(load, name, "range", is_static=True) for name in ("a", "b")]
        load.await_shared(*members)
        load.await_progress()
        formed = generations(load.history())[-1]
        callbacks = [len(member.events_of("assigned", "revoked", "lost")) for member in members]

        # when the broker ends in either way and comes back
        for end in (killable.broker.stop, killable.broker.kill):
            end()
            killable.broker.start()
            committed = [len(member.events_of("committed")) for member in members]
            load.await_progress()

            # then every member has its generation as before, and commits in it
            load.await_commits(members, beyond=committed)
            assert generations(load.history())[-1] == formed
            assert [len(member.events_of("assigned", "revoked", "lost")) for member in members] == callbacks

        # (control: a newcomer does move partitions, and all of that is seen to change)
        members.append(start(load, "c", "range", is_static=True))
        load.await_shared(*members)
        assert generations(load.history())[-1].number > formed.number
        assert [len(member.events_of("assigned", "revoked", "lost")) for member in members[:2]] != callbacks
