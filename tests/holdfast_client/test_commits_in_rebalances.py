"""A cooperative member goes on working while its group rebalances, and commits what it has done at every moment of it.

Its joins and syncs travel on one connection, its commits on another: whatever response comes first, nothing that it
processed may be processed again by any member that gets the partition next. The wire holds the one; the other
overtakes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.sync_group import SYNC_GROUP
from tests.holdfast_client.invariants import processed_twice
from tests.holdfast_client.numbered_workload import Worker
from tests.holdfast_client.pausing_proxy import Side
from tests.holdfast_client.proxied_broker import ProxiedBroker
from tests.support.eventually import eventually

SETTINGS = {"strategy": "cooperative-sticky", "session_timeout_ms": 20_000}


@dataclass(frozen=True)
class Moment:
    api_key: int
    side: Side
    outcome: str
    """How a commit ends that is made at this moment, by the words of the log."""


MOMENTS = (
    # The next generation has formed, and the member does not know: its commit is of the old one (22).
    Moment(JOIN_GROUP.key, Side.REPLY, "refused"),
    # The group waits for its assignment (27).
    Moment(SYNC_GROUP.key, Side.REQUEST, "refused"),
    # Controls: while the others are awaited, the old generation may still commit; the new one as soon as it is stored.
    Moment(JOIN_GROUP.key, Side.REQUEST, "committed"),
    Moment(SYNC_GROUP.key, Side.REPLY, "committed"),
)


def test_nothing_is_processed_twice_whenever_a_commit_falls_into_a_rebalance(
    proxied: ProxiedBroker, topic: str, group: str, tmp_path: Path
) -> None:
    # given the first member of a group, which leads it as long as it lives
    load = proxied.workload(group, topic, tmp_path)
    with load.running():
        leader = load.start("leader", **SETTINGS)
        members = [leader]
        load.await_idle(leader)
        for number, moment in enumerate(MOMENTS):
            # when a newcomer makes the group rebalance, and the leader has gone just so far
            hold = proxied.proxy.hold(leader.name, moment.api_key, moment.side)
            members.append(load.start(f"newcomer-{number}", **SETTINGS))
            hold.await_caught()
            # and commits there
            assert outcome_of_a_commit(leader) == moment.outcome, moment
            hold.pass_on()
            # then all of them come to rest
            load.await_idle(*members)
            load.await_progress()

    # and nobody's work was lost on the way
    assert [one.name for one in load.workers if one.events_of("lost")] == []
    assert processed_twice(load.workers) == set()


def outcome_of_a_commit(worker: Worker) -> str:
    """Of the first that is made from now on. It makes one at a time: the end of each follows its start."""
    made = len(worker.events_of("committing"))
    return eventually(lambda: worker.events_of("committed", "refused")[made:], "another commit", of=worker)[0].kind
