"""An application moves from confluent-kafka to `holdfast.Consumer`, and back, one process at a time, while it works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.client_compat.servers import Server
from tests.holdfast_client.consumer_process import CONFLUENT, HOLDFAST
from tests.holdfast_client.group_history import generations
from tests.holdfast_client.invariants import processed_twice
from tests.holdfast_client.numbered_workload import Workload

NAMES = ("a", "b", "c")
SESSION_MS = 20_000


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_are_replaced_one_at_a_time_there_and_back(
    server: Server, topic: str, group: str, tmp_path: Path, strategy: str
) -> None:
    # given an application on confluent-kafka
    load = Workload(server, server.bootstrap, group, topic, tmp_path)
    with load.running():
        settings: dict[str, Any] = {"strategy": strategy, "session_timeout_ms": SESSION_MS}
        members = [load.start(name, client=CONFLUENT, **settings) for name in NAMES]
        load.await_idle(*members)

        # when each process in turn is stopped and started with the other client, and again
        for client in (HOLDFAST, CONFLUENT):
            for index in range(len(members)):
                members[index].stop()
                members[index] = load.start(NAMES[index], client=client, **settings)
                # then they share the work at every step
                load.await_idle(*members)
                load.await_progress()

    # and nothing was processed twice: any member that stopped had committed what it did
    assert processed_twice(load.workers) == set()


def test_with_instance_ids_no_member_rebalances(server: Server, topic: str, group: str, tmp_path: Path) -> None:
    # given
    load = Workload(server, server.bootstrap, group, topic, tmp_path)
    with load.running():
        settings: dict[str, Any] = {"session_timeout_ms": SESSION_MS}
        members = [load.start(name, client=CONFLUENT, instance_id=name, **settings) for name in NAMES]
        load.await_idle(*members)
        before, generation = [one.owned for one in members], generations(load.history())[-1].number

        # when
        for index, name in enumerate(NAMES):
            members[index].stop()
            members[index] = load.start(name, client=HOLDFAST, instance_id=name, **settings)
            load.await_shared(*members)

        # then every member is as it was, and there was no rebalance
        load.await_progress()
        assert [one.owned for one in members] == before
        assert generations(load.history())[-1].number == generation
    assert processed_twice(load.workers) == set()
