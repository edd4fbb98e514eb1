"""Members are killed and paused in the middle of join, sync and commit, by the wire's clock and not by luck.

While a group works through numbered records, the wire holds one request of the victim, or the answer to it; that is
when the signal comes. `Workload.running` checks `invariants.py` at the end of every test: no record lost,
duplicates only of what was not committed, no commit beyond what was processed, none by a member that was replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT
from holdfast.wire.apis.sync_group import SYNC_GROUP
from tests.holdfast_client.group_history import commits, generations
from tests.holdfast_client.invariants import processed_twice
from tests.holdfast_client.numbered_workload import Worker, Workload
from tests.holdfast_client.pausing_proxy import Hold, Side
from tests.holdfast_client.proxied_broker import ProxiedBroker
from tests.holdfast_client.worker_log import Event
from tests.support.eventually import eventually

JOIN, SYNC, COMMIT = JOIN_GROUP.key, SYNC_GROUP.key, OFFSET_COMMIT.key
LONG_SESSION_MS = 20_000
"""A session that outlasts a test's pauses, for static members that come back."""
MISSED_MS = 6_000
"""The session of those whose end is waited for; it outlasts what a busy machine does to the others."""


# -- kills -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kill:
    api_key: int
    side: Side
    of_the_leader: bool


RUNS: dict[str, tuple[dict[str, Any], list[Kill]]] = {
    "range-dynamic": (
        {"strategy": "range", "auto_commit": True},
        [Kill(JOIN, Side.REQUEST, True), Kill(SYNC, Side.REPLY, False), Kill(COMMIT, Side.REQUEST, False)],
    ),
    "range-static": (
        {"strategy": "range"},
        [Kill(JOIN, Side.REPLY, True), Kill(SYNC, Side.REQUEST, False), Kill(COMMIT, Side.REPLY, True)],
    ),
    "cooperative-dynamic": (
        {"strategy": "cooperative-sticky"},
        [Kill(JOIN, Side.REQUEST, False), Kill(SYNC, Side.REQUEST, True), Kill(COMMIT, Side.REPLY, False)],
    ),
    "cooperative-static": (
        {"strategy": "cooperative-sticky"},
        # The first has to give partitions up, and dies before it gets its assignment; its next process never had them.
        [Kill(JOIN, Side.REPLY, False), Kill(SYNC, Side.REPLY, True), Kill(COMMIT, Side.REQUEST, True)],
    ),
}
"""Between them, every moment of every kind of member, once."""


@pytest.mark.parametrize("run", RUNS)
def test_members_killed_in_join_sync_and_commit(
    proxied: ProxiedBroker, topic: str, group: str, tmp_path: Path, run: str
) -> None:
    settings, kills = RUNS[run]
    is_static = run.endswith("static")
    load = proxied.workload(group, topic, tmp_path)
    with load.running():

        def start(name: str) -> Worker:
            static = {"instance_id": name, "session_timeout_ms": LONG_SESSION_MS}
            return load.start(name, **settings, **(static if is_static else {"session_timeout_ms": MISSED_MS}))

        # given two that share the work
        members = [start("a"), start("b")]
        load.await_shared(*members)
        load.await_progress()
        for number, kill in enumerate(kills):
            # when the victim is in the middle of it (a newcomer brings about joins and syncs)
            leader, follower = load.leader_and_follower(members)
            victim = leader if kill.of_the_leader else follower
            hold = proxied.proxy.hold(victim.name, kill.api_key, kill.side)
            if kill.api_key != COMMIT:
                members.append(start(f"newcomer-{number}"))
            hold.await_caught()
            # and is killed there; as a static member it is started again
            victim.kill()
            hold.drop()
            members.remove(victim)
            if is_static:
                members.append(start(victim.name))
            # then the others, or the next process of the instance, go on with the work
            load.await_shared(*members)
            load.await_progress()


def test_only_what_was_not_committed_is_processed_twice(
    proxied: ProxiedBroker, topic: str, group: str, tmp_path: Path
) -> None:
    """The window itself, from both of its sides, each the other's control."""
    for side, processed_again in ((Side.REQUEST, True), (Side.REPLY, False)):
        directory = tmp_path / side.value
        directory.mkdir()
        load = proxied.workload(f"{group}-{side.value}", f"{topic}-{side.value}", directory)
        with load.running():
            # given one that has processed something, and whose commit was or was not stored
            victim = load.start("victim", instance_id="one-instance", session_timeout_ms=LONG_SESSION_MS)
            load.await_progress()
            hold = proxied.proxy.hold(victim.name, COMMIT, side)
            hold.await_caught()
            # when it is killed there, and replaced by its successor
            victim.kill()
            hold.drop()
            load.start("successor", instance_id="one-instance", session_timeout_ms=LONG_SESSION_MS)
            load.await_progress()

        # then the successor repeats that batch if, and only if, the commit was not stored
        batch = {(partition, offset - 1) for partition, offset in victim.events_of("committing")[-1].offsets.items()}
        assert (batch <= processed_twice(load.workers)) is processed_again
        assert bool(processed_twice(load.workers)) is processed_again


# -- pauses ------------------------------------------------------------------------------------------------------------


def caught(hold: Hold, worker: Worker) -> Event:
    """The commit that the wire holds: the last that the worker has logged, as long as it waits for its end."""
    hold.await_caught()
    return worker.events_of("committing")[-1]


def is_stored(load: Workload, logged: Event) -> bool:
    """Whether this commit is in the group's history."""
    stored = {(commit.member_id, commit.partition, commit.offset) for commit in commits(load.history())}
    wanted = {(logged.member_id, *where) for where in logged.offsets.items()}
    return wanted <= stored


def await_answer(hold: Hold) -> None:
    hold.pass_on()
    assert hold.answered.wait(60), "the broker did not answer what was held"


@pytest.mark.parametrize(
    "settings",
    [{"strategy": "range"}, {"strategy": "cooperative-sticky", "instance_id": "sleeper"}],
    ids=["range-dynamic", "cooperative-static"],
)
def test_a_member_paused_beyond_its_session_is_refused_and_recovers(
    proxied: ProxiedBroker, topic: str, group: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    # given two that share the work
    load = proxied.workload(group, topic, tmp_path)
    with load.running():
        sleeper = load.start("sleeper", session_timeout_ms=MISSED_MS, **settings)
        other = load.start("other", session_timeout_ms=MISSED_MS, strategy=settings["strategy"])
        load.await_shared(sleeper, other)

        # (control: a commit that the wire holds for less than a session is stored)
        hold = proxied.proxy.hold("sleeper", COMMIT, Side.REQUEST)
        held = caught(hold, sleeper)
        await_answer(hold)
        assert is_stored(load, held)

        # when one is paused with a commit on its way, until its partitions are somebody else's
        hold = proxied.proxy.hold("sleeper", COMMIT, Side.REQUEST)
        held = caught(hold, sleeper)
        sleeper.suspend()
        load.await_shared(other)
        load.await_progress()
        await_answer(hold)
        assert not is_stored(load, held)
        before = len(sleeper.events_of("refused"))
        sleeper.resume()

        # then its commit is refused, it lets go of what it had, and comes back by itself as somebody new
        eventually(lambda: len(sleeper.events_of("refused")) > before, "the commit is refused")
        eventually(lambda: sleeper.events_of("lost"), "it learns that its partitions are lost")
        load.await_shared(sleeper, other)
        load.await_progress()
        assert sleeper.events_of("assigned")[-1].member_id != held.member_id


def test_a_paused_static_member_that_was_replaced_is_fenced(
    proxied: ProxiedBroker, topic: str, group: str, tmp_path: Path
) -> None:
    # given
    load = proxied.workload(group, topic, tmp_path)
    with load.running():
        settings = {"instance_id": "static", "session_timeout_ms": LONG_SESSION_MS}
        zombie = load.start("zombie", **settings)
        bystander = load.start("bystander", instance_id="bystander", session_timeout_ms=LONG_SESSION_MS)
        load.await_shared(zombie, bystander)
        generation = generations(load.history())[-1].number

        # when it is paused with a commit on its way, and another process joins with its instance id
        hold = proxied.proxy.hold("zombie", COMMIT, Side.REQUEST)
        held = caught(hold, zombie)
        zombie.suspend()
        successor = load.start("successor", **settings)
        load.await_shared(successor, bystander)
        await_answer(hold)
        zombie.resume()

        # then the commit is not stored, the zombie says why and ends, and nobody else noticed anything
        zombie.await_end()
        assert not is_stored(load, held)
        assert "FencedInstanceId" in zombie.events_of("refused")[-1].error
        assert "FencedInstanceId" in zombie.events_of("failed")[-1].error
        load.await_progress()
        assert generations(load.history())[-1].number == generation
