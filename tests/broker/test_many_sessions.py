"""The sessions of thousands of standbys end in one tick: the others are served meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.join_groups import JoinGroupsMember, JoinGroupsRequest
from holdfast.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.wire_client import WireClient
from tests.support.eventually import eventually
from tests.support.watched_broker import WatchedBroker

BOUND_S = 0.05
STANDBYS, AT_ONCE = 10_000, 1_000
GROUP = 32
PROTOCOLS = [JoinGroupRequestProtocol("range", b"")]


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with WatchedBroker(tmp_path_factory.mktemp("sessions"), settings) as started:
        yield started


def members_of(client: WireClient, group: str) -> int:
    return len(client.ask(DescribeGroupsRequest([group]), 5).groups[0].members)


def test_no_client_waits_while_many_sessions_expire(broker: WatchedBroker) -> None:
    with WireClient(broker.address) as client, WireClient(broker.address) as joining:
        # given a group of one member, and many standbys that fall silent
        change = IncrementalAlterableConfig("target.group.size", 0, "1")
        resource = IncrementalAlterConfigsResource(GROUP, "g", [change])
        assert client.ask(IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code == 0
        active = client.ask(JoinGroupRequest("g", 600_000, 600_000, "", "active", "consumer", PROTOCOLS), 5)
        assert active.error_code == 0
        mine = [SyncGroupRequestAssignment(active.member_id, b"")]
        assert client.ask(SyncGroupRequest("g", active.generation_id, active.member_id, "active", assignments=mine), 3)
        for start in range(0, STANDBYS, AT_ONCE):
            members = [JoinGroupsMember("", f"s-{number}", PROTOCOLS) for number in range(start, start + AT_ONCE)]
            answers = joining.ask(JoinGroupsRequest("g", 600_000, 600_000, "consumer", members), 0)
            assert all(result.error_code == 0 for result in answers.results)
        assert members_of(client, "g") == 1 + STANDBYS

        # when
        with broker.watch(after=lambda: end_all_sessions(broker)) as longest:
            eventually(lambda: members_of(client, "g") == 1, "they are gone", within_s=60)

            # then
            assert longest() < BOUND_S


def end_all_sessions(broker: WatchedBroker) -> None:
    """In one tick, as if they had all been heard of last at the same time. None has ended when this returns."""
    groups = broker.broker.groups
    group = groups.coordinator._groups["g"]
    for member in list(group.members.standbys.values()):
        assert group.timers[member].move(groups.now_ms())
    assert len(group.members.standbys) == STANDBYS
